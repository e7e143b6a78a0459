"""In: a network and settings. Out: `State`: all that changes while it learns, saved and restored as plain values."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from klinepred.errors import TrainingError
from klinepred.model.lstm import Network
from klinepred.settings import TrainSettings
from klinepred.training.average import WeightAverage
from klinepred.training.precision import Precision, resolve
from klinepred.training.step import StepResult


@dataclass
class Counters:
    """Where the run stands.

    Attributes
    ----------
    epoch, position
        Finished epochs; steps tried in the epoch under way.
    tried, done
        Steps tried and steps that changed the weights, over the whole run.
    clipped, in_a_row
        Steps whose gradients were clipped; skipped steps since the last that was not.
    fallback
        How the precision fell in this run, in words; empty = it did not.
    loss_sum, labels
        Of the epoch under way: loss times labelled rows, and labelled rows, over steps not skipped.
    best_loss, best_epoch, stale
        Lowest validation loss, its epoch (from 1; 0 = none yet), epochs since.
    """

    epoch: int = 0
    position: int = 0
    tried: int = 0
    done: int = 0
    clipped: int = 0
    in_a_row: int = 0
    fallback: str = ""
    loss_sum: float = 0.0
    labels: int = 0
    best_loss: float = math.inf
    best_epoch: int = 0
    stale: int = 0

    @property
    def skipped(self) -> int:
        """Steps whose gradients were not finite."""
        return self.tried - self.done

    @property
    def train_loss(self) -> float:
        """Mean over the labelled rows seen in this epoch; NaN when every step was skipped."""
        return self.loss_sum / self.labels if self.labels else math.nan

    def count_step(self, result: StepResult, *, labels: int) -> None:
        """Take in a step."""
        self.position += 1
        self.tried += 1
        self.clipped += result.clipped
        self.in_a_row = self.in_a_row + 1 if result.skipped else 0
        if not result.skipped:
            self.done += 1
            self.loss_sum += result.loss * labels
            self.labels += labels

    def close_epoch(self, val_loss: float) -> bool:
        """Take in the epoch's validation loss; whether it is the best so far.

        NaN and infinity never are, nor is the loss of weights that no step has changed yet.
        """
        self.epoch += 1
        self.position, self.loss_sum, self.labels = 0, 0.0, 0
        best = self.done > 0 and val_loss < self.best_loss
        if best:
            self.best_loss, self.best_epoch, self.stale = val_loss, self.epoch, 0
        else:
            self.stale += 1
        return best


@dataclass
class State:
    """Everything that changes while a network learns, but for torch's random state, which `snapshot` adds.

    The precision is part of it: it falls where numbers stay infinite and `train.on_overflow` says so.
    """

    network: Network
    average: WeightAverage
    optimiser: torch.optim.AdamW
    precision: Precision
    scaler: torch.amp.GradScaler
    counters: Counters = field(default_factory=Counters)
    best: dict[str, torch.Tensor] = field(default_factory=dict)

    def fall(self, to: Precision, *, train: TrainSettings) -> None:
        """Go on in another precision, from the weights of the last step that was not skipped."""
        step = f"{self.precision.name} -> {to.name} at step {self.counters.tried}"
        self.counters.fallback = f"{self.counters.fallback}, {step}".removeprefix(", ")
        self.counters.in_a_row = 0
        self.precision, self.scaler = to, to.scaler(train)

    def keep_best(self) -> None:
        """Keep a copy of the averaged weights, on the CPU."""
        weights = self.average.network.state_dict()
        self.best = {name: weight.detach().to("cpu", copy=True) for name, weight in weights.items()}


def make_state(network: Network, *, train: TrainSettings, precision: Precision) -> State:
    """A fresh state for a network that is on its device."""
    return State(
        network=network,
        average=WeightAverage(network, decay=train.ema),
        optimiser=torch.optim.AdamW(network.parameters(), lr=train.lr, weight_decay=train.weight_decay),
        precision=precision,
        scaler=precision.scaler(train),
    )


def precision_of(train: TrainSettings, device: torch.device, *, saved: dict[str, Any] | None) -> Precision:
    """The precision to begin or to go on in: the settings', unless the run had fallen to another under the same ones.

    Errors as `klinepred.training.precision.resolve`.
    """
    asked = resolve(train, device)
    if saved is None or not saved["counters"].get("fallback"):
        return asked
    before = saved["pipeline"]["train"]
    if (before["amp"], before["precision"]) != (train.amp, train.precision):
        return asked
    fallen = resolve(train.model_copy(update={"precision": saved["precision"]}), device)
    return replace(fallen, reason=f"the run has fallen back: {saved['counters']['fallback']}")


def snapshot(state: State, *, device: torch.device) -> dict[str, Any]:
    """The state as tensors, numbers and texts only, torch's random state included."""
    return {
        "network": state.network.state_dict(),
        "average": state.average.network.state_dict(),
        "optimiser": state.optimiser.state_dict(),
        "scaler": state.scaler.state_dict(),
        "precision": state.precision.name,
        "counters": asdict(state.counters),
        "best": state.best,
        "rng": torch.get_rng_state(),
        "rng_cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def restore(state: State, saved: dict[str, Any], *, train: TrainSettings, device: torch.device) -> list[str]:
    """Put a snapshot back; remarks on what could not be taken over from another device or precision.

    Raises
    ------
    TrainingError
        It is not the snapshot of such a network and optimiser.
    """
    try:
        return _put_back(state, saved, train=train, device=device)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise TrainingError(
            "checkpoint",
            expected="the state of this very network, its optimiser and its counters",
            got=f"another one: {' '.join(str(error).split())[:200]}",
            do="resume from an intact checkpoint with the version of klinepred that wrote it, or train anew",
        ) from error


def _put_back(state: State, saved: dict[str, Any], *, train: TrainSettings, device: torch.device) -> list[str]:
    remarks = []
    state.network.load_state_dict(saved["network"])
    if state.average.network is not state.network:  # else the average of before would overwrite the weights
        state.average.network.load_state_dict(saved["average"])
    state.optimiser.load_state_dict(saved["optimiser"])
    for group in state.optimiser.param_groups:
        group["weight_decay"] = train.weight_decay
    if state.scaler.is_enabled() and saved["scaler"]:
        state.scaler.load_state_dict(saved["scaler"])
    elif state.scaler.is_enabled():
        remarks.append(f"the checkpoint has no state of a GradScaler: the loss scale starts afresh at {_scale(state)}")
    elif saved["scaler"]:
        remarks.append("the checkpoint's loss scale is not needed in this precision and was left out")
    if saved["precision"] != state.precision.name:
        now = state.precision
        remarks.append(f"until here the run was in {saved['precision']}, it goes on in {now.name}: {now.reason}")
    state.counters = Counters(**saved["counters"])
    if state.counters.fallback:
        remarks.append(
            f"gradients overflowed earlier in this run: {state.counters.fallback}; it goes on in {state.precision.name}"
        )
    state.best = dict(saved["best"])
    torch.set_rng_state(saved["rng"])
    if device.type == "cuda" and saved["rng_cuda"] is not None:
        torch.cuda.set_rng_state(saved["rng_cuda"], device)
    elif device.type == "cuda" or saved["rng_cuda"] is not None:
        remarks.append(
            "the checkpoint comes from another kind of device: dropout draws other numbers than it would have"
        )
    return remarks


def _scale(state: State) -> str:
    return f"{state.scaler.get_scale():g}"
