"""In: what a training was given. Out: `Session`: what the loop works with, from the first step to the last."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from klinepred.dataset.make import Dataset
from klinepred.settings import TrainSettings
from klinepred.training.pace import Pace
from klinepred.training.precision import Precision
from klinepred.training.progress import Progress, StepNews
from klinepred.training.ranks import Ranks
from klinepred.training.rows import TrainRows
from klinepred.training.saver import Saver
from klinepred.training.signals import StopRequest
from klinepred.training.state import State
from klinepred.training.step import Spread
from klinepred.training.tracker import Tracker


@dataclass(frozen=True)
class Session:
    """What the loop works with; only `state` changes, and torch's switches with its precision.

    Attributes
    ----------
    switches
        Holds `state.precision.applied()`.
    checkpoint
        Where `save` writes; None = nowhere.
    ranks, shared
        The processes that train together, and what to call in place of the network then.
    """

    data: Dataset
    rows: TrainRows
    state: State
    train: TrainSettings
    device: torch.device
    tracker: Tracker
    progress: Progress
    stop: StopRequest
    switches: ExitStack
    checkpoint: Path | None
    save: Saver
    ranks: Ranks
    shared: nn.Module

    def spread(self, labels: int) -> Spread | None:
        """How a batch of so many labelled rows is divided; None: it is not."""
        return None if self.ranks.alone else Spread(self.shared, labels, self.ranks)

    def fall(self, to: Precision) -> None:
        """Go on in precision `to`: state and switches."""
        self.state.fall(to, train=self.train)
        self.switches.close()
        self.switches.enter_context(to.applied())

    @property
    def planned(self) -> int:
        """Steps of the whole run."""
        return self.train.epochs * self.rows.steps

    @property
    def over(self) -> bool:
        """Whether the last epoch is done, or patience is out."""
        counters, train = self.state.counters, self.train
        return counters.epoch >= train.epochs or bool(train.patience and counters.stale >= train.patience)

    def stopping(self) -> bool:
        """Whether a stop signal has come, to this process or to another that trains with it."""
        return self.ranks.sums(float(self.stop.signal is not None))[0] > 0

    def news(self, loss: float, *, pace: Pace) -> StepNews:
        """What the user is shown after a step."""
        counters = self.state.counters
        return StepNews(
            epoch=counters.epoch + 1,
            epochs=self.train.epochs,
            step=counters.tried,
            steps=self.planned,
            loss=loss,
            bars_per_s=pace.bars_per_s,
            eta_s=pace.eta_s(self.planned - counters.tried),
        )
