"""In: a dataset, settings. Out: every precision trained side by side on the same batches, and what each did."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch

from klinepred.settings import TrainSettings
from klinepred.training.precision import Precision, native_bf16, resolve
from klinepred.training.progress import Progress, StepNews
from klinepred.training.rows import TrainRows
from klinepred.trial.lane import Lane, Record
from klinepred.trial.probe import Batch
from klinepred.trial.watch import Watch

NAMES: Final = ("fp32", "fp16", "bf16")
WARMUP: Final = 3
"""Steps whose time does not count: kernels are chosen, caches filled, the optimiser's state made."""


@dataclass
class Clock:
    """Where the race stands, for those who wait; and whether it shall stop."""

    progress: Progress
    check: Callable[[str], None]
    steps: int
    done: int = 0
    start: float = 0.0

    def tick(self, lane: Lane, *, labels: int) -> None:
        """A step of a lane has ended."""
        self.done += 1
        spent = time.perf_counter() - self.start
        record = lane.record
        loss = record.losses[-1] if record.losses else float("nan")
        speed = labels / record.seconds[-1] if record.seconds else 0.0
        left = spent / self.done * (self.steps - self.done)
        self.progress.step(StepNews(1, 1, self.done, self.steps, loss, speed, left))
        self.check(f"in step {len(record.losses)} of {record.name}")


def precisions(train: TrainSettings, device: torch.device) -> dict[str, Precision]:
    """What can be tried on this device, strict fp32 first; TF32 and bf16 only on cards that have them."""
    out: dict[str, Precision] = {}
    for name in NAMES:
        found = resolve(train.model_copy(update={"precision": name, "amp": name != "fp32"}), device)
        if name == "fp32":
            out[name] = replace(found, tf32=False)
            if device.type == "cuda" and native_bf16(device):  # both came with the same generation of cards
                out["tf32"] = replace(found, tf32=True)
        elif found.name == name:
            out[name] = found
    return out


def batches(rows: TrainRows, *, steps: int, first: int = 0) -> Iterator[tuple[Batch, int]]:
    """The first `steps` batches of epoch `first` and those that follow, each with its count of labelled rows."""
    epoch, left = first, steps
    while left:
        for batch, labels in rows.epoch(epoch):
            yield batch, labels
            left -= 1
            if not left:
                return
        epoch += 1


def race(
    lanes: Sequence[Lane],
    rows: TrainRows,
    *,
    steps: int,
    seed: int,
    first: int = 0,
    clock: Clock,
    watch: Watch | None = None,
) -> None:
    """Every lane takes every step on the same batch, in an order that turns, so that a drift of the machine hits all.

    Parameters
    ----------
    seed
        Of the numbers that dropout draws, by step.
    watch
        Looks at the first lane before and after each step.
    """
    for number, (batch, labels) in enumerate(batches(rows, steps=steps, first=first)):
        if watch is not None:
            watch.before(number, batch)
        for turn in range(len(lanes)):
            lane = lanes[(number + turn) % len(lanes)]
            lane.step(batch, seed=seed * 1_000_003 + number)
            clock.tick(lane, labels=labels)
        if watch is not None:
            watch.after(number)


def step_ms(record: Record) -> float:
    """Median milliseconds of a step, warm-up left out; NaN where none is left."""
    counted = record.seconds[WARMUP:]
    return 1000.0 * statistics.median(counted) if counted else float("nan")


def speedup(base: Record, other: Record) -> tuple[float, float, float]:
    """How many times as fast as `base` the other one is: the median over the steps, and its 95 % interval.

    Each step is compared with the same step of `base`, taken moments away. The interval is that of the sign test
    (Conover, Practical Nonparametric Statistics, 1999, section 3.2), which asks nothing of the machine's noise. NaN
    where no step is left after warm-up, or one of both stopped early.
    """
    pairs = list(zip(base.seconds[WARMUP:], other.seconds[WARMUP:], strict=False))
    if not pairs or len(base.seconds) != len(other.seconds):
        return (float("nan"),) * 3
    ratios = sorted(first / second for first, second in pairs)
    out = max(0, math.floor((len(ratios) - 1.96 * math.sqrt(len(ratios))) / 2))
    return statistics.median(ratios), ratios[out], ratios[-1 - out]


def late_skipped(record: Record) -> float:
    """Share of the second half of the steps that the GradScaler skipped."""
    late = record.skipped[len(record.skipped) // 2 :]
    return sum(late) / len(late) if late else 0.0


def last_quarter(losses: Sequence[float]) -> float:
    """Mean loss of the last quarter of the steps; NaN without any."""
    late = losses[-max(1, len(losses) // 4) :]
    return statistics.fmean(late) if late else float("nan")
