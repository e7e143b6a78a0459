"""In: what happens while a network learns. Out: the protocol of who shows it, `Progress`, and one that does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class StepNews:
    """After a step. `epoch` and `step` count from 1, `step` over the whole run; `loss` of this batch."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    bars_per_s: float
    """Labelled bars per second, over the last steps."""
    eta_s: float
    """Seconds until the last planned epoch ends, if none stops it earlier."""


@dataclass(frozen=True)
class EpochNews:
    """After validation. `best` says whether this epoch is the best so far."""

    epoch: int
    epochs: int
    train_loss: float
    val_loss: float
    val_ic: float
    best: bool
    lr: float
    seconds: float


class Progress(Protocol):
    """Who shows it to the user."""

    def begin(self, *, steps: int, done: int) -> None:
        """Before the first step: steps planned in all, and those done before a resume."""

    def step(self, news: StepNews) -> None:
        """After every step."""

    def epoch(self, news: EpochNews) -> None:
        """After every epoch."""

    def end(self) -> None:
        """Always, however training ends."""


class NoProgress:
    """Shows nothing."""

    def begin(self, *, steps: int, done: int) -> None:
        return None

    def step(self, news: StepNews) -> None:
        return None

    def epoch(self, news: EpochNews) -> None:
        return None

    def end(self) -> None:
        return None
