"""In: a network's settings, a precision. Out: `Lane`: a training of its own, one step at a time, and its record."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch

from klinepred.model.lstm import build_network
from klinepred.settings import ModelSettings, TrainSettings
from klinepred.training.precision import Precision
from klinepred.training.schedule import learning_rate
from klinepred.training.state import State, make_state
from klinepred.training.step import take_step
from klinepred.trial.probe import Batch


@dataclass
class Record:
    """What a lane did.

    Attributes
    ----------
    losses, scales, seconds
        Of every step tried: loss of the batch, loss scale, wall time.
    skipped
        Of every step tried, whether the GradScaler left the weights alone.
    fault
        Why it went no further; empty = it did not stop.
    """

    name: str
    losses: list[float] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    skipped: list[bool] = field(default_factory=list)
    fault: str = ""


@dataclass(frozen=True)
class Lane:
    """One precision, trained beside the others; `state` and `record` change."""

    precision: Precision
    state: State
    train: TrainSettings
    device: torch.device
    planned: int
    record: Record

    @property
    def lr(self) -> float:
        """Learning rate of the next step."""
        done = len(self.record.skipped) - sum(self.record.skipped)
        return learning_rate(done, planned=self.planned, train=self.train)

    def step(self, batch: Batch, *, seed: int) -> None:
        """Take the next step; `seed` fixes the numbers that dropout draws. A lane with a fault stands still."""
        record, state = self.record, self.state
        if record.fault:
            return
        for group in state.optimiser.param_groups:
            group["lr"] = self.lr
        state.network.train()
        torch.manual_seed(seed)
        with self.precision.applied():
            start = self._now()
            result = take_step(
                state.network,
                state.optimiser,
                state.scaler,
                batch,
                precision=self.precision,
                train=self.train,
                quantiles=state.network.quantiles,
            )
            seconds = self._now() - start
        if result.skipped and not state.scaler.is_enabled():
            record.fault = f"step {len(record.losses) + 1}: gradient norm {result.norm} at a loss of {result.loss:g}"
            return
        record.seconds.append(seconds)
        record.losses.append(result.loss)
        record.scales.append(result.scale)
        record.skipped.append(result.skipped)

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def make_lane(
    name: str,
    *,
    model: ModelSettings,
    train: TrainSettings,
    precision: Precision,
    inputs: int,
    device: torch.device,
    planned: int,
) -> Lane:
    """A lane at its start: the weights depend on `train.seed` alone, so those of every precision are the same."""
    torch.manual_seed(train.seed)
    network = build_network(model, inputs=inputs).to(device)
    plain = train.model_copy(update={"ema": 0.0})
    state = make_state(network, train=plain, precision=precision)
    return Lane(precision, state, plain, device, planned, Record(name))
