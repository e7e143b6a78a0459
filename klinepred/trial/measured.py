"""In: what lanes and probes did. Out: `Measured`: the numbers of one precision; `Trial`: those of all of them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Measured:
    """One precision in the trial. NaN or None: not measured, or not a number.

    Attributes
    ----------
    steps, skipped
        Steps tried, and those the GradScaler skipped.
    late_skipped
        Share of the steps of the second half that were skipped: by then the loss scale has come down.
    fault
        Why it stopped early; empty = it did not.
    train_loss
        Mean over the last quarter of the steps, of batches that are the same for every precision.
    val_loss
        After the last step, on rows of validation.
    cosine, error, flushed
        The worst of the probes: see `klinepred.trial.probe.Likeness`; fp32 beside itself is 1, 0, 0.
    diff_bps, diff_p99_bps
        Predictions beside those of fp32's network, in basis points: root mean square, and 99th percentile.
    sign_flips
        Share of predictions whose sign differs from fp32's.
    step_ms
        Median wall time of a step, warm-up left out.
    speedup, speedup_low, speedup_high
        See `klinepred.trial.race.speedup`; fp32 beside itself is 1.
    peak_mib
        See `klinepred.trial.memory.peak_mib`.
    """

    name: str
    steps: int
    skipped: int = 0
    late_skipped: float = 0.0
    fault: str = ""
    train_loss: float = math.nan
    val_loss: float = math.nan
    cosine: float = math.nan
    error: float = math.nan
    flushed: float = math.nan
    diff_bps: float = math.nan
    diff_p99_bps: float = math.nan
    sign_flips: float = math.nan
    step_ms: float = math.nan
    speedup: float = math.nan
    speedup_low: float = math.nan
    speedup_high: float = math.nan
    peak_mib: float | None = None
    scale: float = math.nan

    @property
    def trained(self) -> bool:
        """Whether it took steps, or was only probed."""
        return self.steps > 0


@dataclass(frozen=True)
class Yardstick:
    """What another order of the same batches changes in fp32: differences below it nobody would notice."""

    val_loss: float
    diff_bps: float
    diff_p99_bps: float
    sign_flips: float


@dataclass(frozen=True)
class Naive:
    """What fp16 would lose without its two remedies. Shares of non-zero entries; NaN: not measured.

    Attributes
    ----------
    flushed, cosine
        fp16 autocast without loss scaling, beside fp32 at the same weights: gradient entries that are exactly 0, and
        the angle.
    below_normal
        Entries of fp32's gradient below fp16's normal numbers, where digits are lost.
    lost_updates
        Updates that would vanish in weights kept in fp16.
    lr
        Learning rate of those updates.
    """

    flushed: float
    cosine: float
    below_normal: float
    lost_updates: float
    lr: float


@dataclass(frozen=True)
class Curve:
    """Loss and loss scale of every step of a lane."""

    losses: tuple[float, ...]
    scales: tuple[float, ...]


@dataclass(frozen=True)
class Trial:
    """All that was measured. `probes`: by precision, step and `1 - cosine` of each probe."""

    device: str
    parameters: int
    batch: tuple[int, int, int]
    rows: int
    base: Measured
    others: tuple[Measured, ...]
    yardstick: Yardstick
    naive: Naive
    curves: dict[str, Curve] = field(default_factory=dict)
    seconds: dict[str, tuple[float, ...]] = field(default_factory=dict)
    probes: dict[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)


def clean(table: Any) -> Any:
    """Plain values for JSON; what is not a finite number becomes None."""
    if isinstance(table, dict):
        return {key: clean(value) for key, value in table.items()}
    if isinstance(table, list | tuple):
        return [clean(value) for value in table]
    if isinstance(table, float) and not math.isfinite(table):
        return None
    return table


def plain_values(value: Measured | Yardstick | Naive) -> dict[str, Any]:
    """A value as a dictionary for JSON."""
    return dict(clean(asdict(value)))
