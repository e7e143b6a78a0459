"""In: what a trial measured. Out: which precision to train in, and why; the limits of parity, each with its reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from klinepred.trial.measured import Measured, Yardstick

COSINE: Final = 0.99
"""Least cosine of a gradient with fp32's. At 0.99 a seventh of it points elsewhere; the gradients of two batches agree
far less, so that much is noise among noise. Sound rounding gives 0.999 and more: below 0.99 something else is wrong."""
FLUSHED: Final = 0.01
"""Most gradient entries that may be exactly 0 though fp32's are not. With a working loss scale it is next to none."""
LATE_SKIPPED: Final = 0.1
"""Most steps of the second half that may be skipped. The scale halves once per skip and doubles every 2000 steps:
by then it should have found its place."""
LEAST_SCALE: Final = 1.0
"""A loss scale below 1 protects nothing: gradients overflow for another reason than the scale."""
LOSS: Final = 1e-3
"""Most that validation loss may be worse, as a share: with an information coefficient of 0.05, of which 5-minute bars
rarely have more, the whole skill is 0.0025 of the loss."""
FASTER: Final = 1.05
"""Least gain in speed worth speaking of, if the interval of the measurement leaves no doubt that there is one."""
LEANER: Final = 0.9
"""Memory at most this share of fp32's is a reason of its own, if speed does not suffer."""


@dataclass(frozen=True)
class Advice:
    """The recommendation.

    Attributes
    ----------
    precision
        fp32, tf32, fp16, bf16; or "none" where fp32 itself cannot be trained.
    flags
        What to add to `klinepred train`; empty for fp32.
    reason
        One sentence.
    verdicts
        By precision: "parity", or what speaks against it.
    """

    precision: str
    flags: str
    reason: str
    verdicts: dict[str, str]

    @property
    def passed(self) -> tuple[str, ...]:
        """The precisions that training may use."""
        return tuple(name for name, verdict in self.verdicts.items() if verdict == PARITY)


PARITY: Final = "parity"
PROBED: Final = "only probed"


def judge(one: Measured, *, base: Measured, yardstick: Yardstick) -> str:
    """`PARITY`, `PROBED`, or the first limit that `one` breaks, in words."""
    if one.fault:
        return f"unstable: {one.fault}"
    if one.late_skipped > LATE_SKIPPED:
        return f"unstable: {one.late_skipped:.0%} of the later steps were skipped (limit {LATE_SKIPPED:.0%})"
    if one.scale < LEAST_SCALE:
        return f"unstable: the loss scale fell to {one.scale:g}"
    if not one.cosine >= COSINE:
        return f"gradients point elsewhere: cosine with fp32 {one.cosine:.4f} (limit {COSINE})"
    if one.flushed > FLUSHED:
        return f"{one.flushed:.1%} of the gradient entries vanished (limit {FLUSHED:.0%})"
    if not one.trained:
        return PROBED
    if not (math.isfinite(one.train_loss) and math.isfinite(one.val_loss)):
        return "unstable: the loss is not finite"
    worse = one.val_loss / base.val_loss - 1.0
    if worse > LOSS:
        return f"validation loss is {worse:.2%} worse than fp32's (limit {LOSS:.1%})"
    if not one.diff_bps <= yardstick.diff_bps:
        return (
            f"predictions are {one.diff_bps:.3g} bps off fp32's, more than another order of the batches"
            f" makes ({yardstick.diff_bps:.3g})"
        )
    return PARITY


def advise(base: Measured, others: Sequence[Measured], *, yardstick: Yardstick, amp: str) -> Advice:
    """Recommend the fastest precision in parity, if it is faster or leaner than fp32; else fp32.

    Parameters
    ----------
    amp
        The precision that `--amp` means on this device.
    """
    if base.fault or not (math.isfinite(base.train_loss) and math.isfinite(base.val_loss)):
        fault = base.fault or "the loss is not finite"
        verdicts = {base.name: f"unstable: {fault}"} | {one.name: "fp32 itself is unstable" for one in others}
        return Advice("none", "", f"unstable: fp32 itself cannot be trained ({fault}); lower train.lr first", verdicts)
    verdicts = {base.name: PARITY} | {one.name: judge(one, base=base, yardstick=yardstick) for one in others}
    sound = [one for one in others if verdicts[one.name] == PARITY]
    against = [f"{name}: {verdict}" for name, verdict in verdicts.items() if verdict not in (PARITY, PROBED)]
    tail = f" ({'; '.join(against)})" if against else ""
    fast = [one for one in sound if one.speedup >= FASTER and one.speedup_low > 1.0]
    lean = [one for one in sound if one.speedup > 1.0 / FASTER and _memory(one, base) <= LEANER]
    if fast or lean:
        best = max(fast or lean, key=lambda one: one.speedup)
        gain = f"{best.speedup:.2f} times as fast as fp32"
        memory = _memory(best, base)
        if math.isfinite(memory):
            gain += f" with {memory:.2f} of its memory"
        flags = "--set train.tf32=true" if best.name == "tf32" else f"--precision {best.name}"
        flags = "--amp" if best.name == amp else flags
        return Advice(best.name, flags, f"{best.name} is {gain}, and nothing tells it from fp32{tail}", verdicts)
    if sound:
        best = max(sound, key=lambda one: one.speedup)
        took = f"{best.name} is {best.speedup:.2f} times as fast as fp32"
        if best.speedup_low <= 1.0 <= best.speedup_high:
            took += f" ({best.speedup_low:.2f} to {best.speedup_high:.2f}: no difference that could be measured)"
        return Advice(base.name, "", f"AMP is not faster here: {took}{tail}", verdicts)
    said = f"no other precision is as good as fp32 here{tail}" if against else "nothing else was trained here"
    return Advice(base.name, "", said, verdicts)


def _memory(one: Measured, base: Measured) -> float:
    """Memory as a share of fp32's; NaN where one of them is not known."""
    return one.peak_mib / base.peak_mib if one.peak_mib and base.peak_mib else math.nan
