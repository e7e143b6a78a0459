"""In: a dataset, a pipeline. Out: `Track`: copies of the weights while the product's own step learns, with times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from klinepred.dataset.make import Dataset
from klinepred.model.forward import forward_rows
from klinepred.model.lstm import Network, build_network
from klinepred.settings import Pipeline, TrainSettings
from klinepred.training.heap import kept_heap
from klinepred.training.precision import resolve
from klinepred.training.rows import Batch, TrainRows
from klinepred.training.schedule import learning_rate
from klinepred.training.state import State, make_state
from klinepred.training.step import take_step

CPU = torch.device("cpu")
TRIAL_STEPS = 2


@dataclass(frozen=True)
class Mark:
    """Where a loop stood: seconds of training until then, steps, labels seen."""

    seconds: float
    steps: int
    labels: int


@dataclass
class Track:
    """The marks of one run, and the averaged weights at each."""

    network: Network
    marks: list[Mark] = field(default_factory=list)
    weights: list[dict[str, torch.Tensor]] = field(default_factory=list)

    def keep(self, state: State, mark: Mark) -> None:
        """Copy the weights that validation would use now."""
        self.marks.append(mark)
        self.weights.append({name: kept.clone() for name, kept in state.average.network.state_dict().items()})

    def predict(self, spot: int, data: Dataset, mask_N: np.ndarray) -> np.ndarray:
        """Predictions [V] of the rows of a mask with the weights of mark `spot`, in float32 as the product predicts."""
        self.network.load_state_dict(self.weights[spot])
        pred_N = forward_rows(self.network, data.x_NF, data.sequences.covering(mask_N))
        return np.asarray(pred_N[mask_N])


def train_whole(data: Dataset, run: Pipeline, train: TrainSettings, *, every: int) -> Track:
    """All epochs that the settings plan, with a mark every so many steps and at the end of each epoch."""
    epoch = TrainRows(data, device=CPU, size=train.batch, seed=train.seed).steps
    return _learn(
        data,
        run,
        train,
        planned=train.epochs * epoch,
        until=float("inf"),
        due=lambda _, step: step % every == 0 or step % epoch == 0,
    )


def train_budget(data: Dataset, run: Pipeline, train: TrainSettings, *, budget: float, marks: int) -> Track:
    """So many seconds; the schedule is planned for what 97 % of them hold, by the pace of an untimed trial."""
    trial = _learn(data, run, train, planned=TRIAL_STEPS, until=float("inf"), due=lambda *_: True)
    pace = (trial.marks[-1].seconds - trial.marks[0].seconds) / (TRIAL_STEPS - 1)
    planned = max(1, int(0.97 * budget / pace))
    gone = 0

    def due(seconds: float, _: int) -> bool:
        nonlocal gone
        fresh = int(seconds / budget * marks) > gone
        gone = int(seconds / budget * marks)
        return fresh

    return _learn(data, run, train, planned=planned, until=budget, due=due)


def _endless(rows: TrainRows) -> Iterator[tuple[Batch, int]]:
    number = 0
    while True:
        yield from rows.epoch(number)
        number += 1


def _learn(
    data: Dataset,
    run: Pipeline,
    train: TrainSettings,
    *,
    planned: int,
    until: float,
    due: Callable[[float, int], bool],
) -> Track:
    """The loop of `klinepred.training.loop` without tracker, checkpoints and validation: each step is its step.

    It ends after the planned steps, or with the first step that ends after `until` seconds where that comes first.
    """
    precision = resolve(train, CPU)
    with torch.random.fork_rng(devices=[]), precision.applied(), kept_heap(CPU):
        torch.manual_seed(train.seed)
        state = make_state(build_network(run.model, inputs=data.x_NF.shape[1]), train=train, precision=precision)
        rows = TrainRows(data, device=CPU, size=train.batch, seed=train.seed)
        track = Track(build_network(run.model, inputs=data.x_NF.shape[1]))
        counters = state.counters
        state.network.train()
        labels = 0
        start = time.perf_counter()
        for batch, fresh in _endless(rows):
            lr = learning_rate(counters.done, planned=planned, train=train)
            for group in state.optimiser.param_groups:
                group["lr"] = lr
            result = take_step(state.network, state.optimiser, state.scaler, batch, precision=precision, train=train)
            counters.count_step(result, labels=fresh)
            if not result.skipped:
                state.average.update(state.network, step=counters.done)
            labels += fresh
            seconds = time.perf_counter() - start
            over = counters.tried >= planned or seconds >= until
            if over or due(seconds, counters.tried):
                track.keep(state, Mark(seconds, counters.tried, labels))
            if over:
                return track
    raise AssertionError("an endless loop ended")
