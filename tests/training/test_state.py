"""In: results of steps and epochs made by hand. Out: what the counters of a run and its state say afterwards."""

from __future__ import annotations

import math

import pytest
import torch

from klinepred.model.lstm import build_network
from klinepred.training.precision import resolve
from klinepred.training.state import Counters, State, make_state
from klinepred.training.step import StepResult
from tests.training.tiny import MODEL, TRAIN

CPU = torch.device("cpu")


def took(loss: float, *, clipped: bool = False, skipped: bool = False) -> StepResult:
    return StepResult(loss, 1.0, clipped=clipped, skipped=skipped, scale=1.0)


def fresh() -> State:
    train = TRAIN.model_copy(update={"lr": 0.25, "weight_decay": 0.125})
    return make_state(build_network(MODEL, inputs=3), train=train, precision=resolve(train, CPU))


def test_a_run_begins_at_zero_without_a_best_epoch() -> None:
    start = Counters()
    numbers = (start.epoch, start.position, start.tried, start.done, start.clipped, start.in_a_row, start.skipped)
    assert numbers == (0, 0, 0, 0, 0, 0, 0)
    assert (start.loss_sum, start.labels, start.best_loss, start.best_epoch, start.stale) == (0.0, 0, math.inf, 0, 0)
    assert math.isnan(start.train_loss)


def test_the_loss_of_an_epoch_is_weighted_by_labels_and_leaves_out_skipped_steps() -> None:
    counters = Counters()
    counters.count_step(took(2.0, clipped=True), labels=10)
    counters.count_step(took(5.0), labels=30)
    counters.count_step(took(math.inf, skipped=True), labels=20)
    counters.count_step(took(math.inf, skipped=True), labels=20)
    assert (counters.tried, counters.position, counters.done, counters.skipped) == (4, 4, 2, 2)
    assert (counters.clipped, counters.in_a_row) == (1, 2)
    assert (counters.labels, counters.train_loss) == (40, (2.0 * 10 + 5.0 * 30) / 40)
    counters.count_step(took(1.0, clipped=True), labels=40)
    assert (counters.clipped, counters.in_a_row, counters.train_loss) == (2, 0, (20 + 150 + 40) / 80)


def test_an_epoch_is_the_best_if_its_loss_is_lower_and_some_step_was_taken() -> None:
    counters = Counters()
    assert not counters.close_epoch(0.5)  # no step has changed a weight yet
    counters.count_step(took(1.0), labels=4)
    found = []
    for loss in (3.0, 3.0, math.nan, 2.0, math.inf, 2.5):
        found.append(counters.close_epoch(loss))
        assert (counters.position, counters.loss_sum, counters.labels) == (0, 0.0, 0)
    assert found == [True, False, False, True, False, False]
    assert (counters.epoch, counters.best_epoch, counters.best_loss, counters.stale) == (7, 5, 2.0, 2)
    assert (counters.tried, counters.done) == (1, 1)


def test_the_optimiser_has_the_settings_rate_and_decay_for_every_weight() -> None:
    state = fresh()
    (group,) = state.optimiser.param_groups
    assert (group["lr"], group["weight_decay"]) == (0.25, 0.125)
    assert len(group["params"]) == len(list(state.network.parameters()))
    assert state.average.decay == TRAIN.ema
    assert state.best == {}


def test_falls_of_precision_are_told_one_after_the_other() -> None:
    state = fresh()
    train = TRAIN.model_copy(update={"init_scale": 256.0})
    half, full = (resolve(train.model_copy(update={"precision": name}), CPU) for name in ("fp16", "fp32"))
    state.counters.tried, state.counters.in_a_row = 7, 3
    state.fall(half, train=train)
    assert (state.precision.name, state.scaler.get_scale(), state.counters.in_a_row) == ("fp16", 256.0, 0)
    state.counters.tried = 9
    state.fall(full, train=train)
    assert not state.scaler.is_enabled()
    assert state.counters.fallback == "fp32 -> fp16 at step 7, fp16 -> fp32 at step 9"


def test_the_best_weights_are_a_copy_of_the_average() -> None:
    state = fresh()
    state.keep_best()
    before = {name: weight.clone() for name, weight in state.best.items()}
    with torch.no_grad():
        for parameter in state.average.network.parameters():
            parameter.add_(1.0)
    for name, weight in before.items():
        assert torch.equal(state.best[name], weight)
    state.keep_best()
    assert {name: float((state.best[name] - weight).mean()) for name, weight in before.items()} == {
        name: pytest.approx(1.0, rel=1e-5) for name in before
    }
