"""In: gradients made by hand, small trainings. Out: what the flight recorder says of them, and how it hands it over."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from klinepred.settings import TrainSettings
from klinepred.training.pace import Pace
from klinepred.training.recorder import BATCH, FlightRecorder, layer_of, peak_mib
from klinepred.training.state import Counters
from klinepred.training.step import StepResult
from tests.training.tiny import TRAIN, Memory, fit, tiny_dataset

CPU = torch.device("cpu")


def recorder(memory: Memory, network: nn.Module, *, log_every: int = 1) -> FlightRecorder:
    return FlightRecorder(memory, network, train=TrainSettings(log_every=log_every), device=CPU)


def record(memory: Memory, network: nn.Module, *, scale: float = 1.0, **options: Any) -> dict[str, float]:
    """Metrics of one record of `network`, whose gradients are there; `options` change the step's result."""
    flight = recorder(memory, network)
    flight.watch(network, scaler=torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale != 1.0))
    step = StepResult(1.0, 2.0, clipped=False, skipped=False, scale=scale)
    counters = Counters(tried=1, done=1)
    options.get("move", lambda: None)()
    flight.record(step, counters, network=network, lr=0.1, pace=Pace(), scaled=scale != 1.0)
    flight.flush()
    return {metric.name: metric.value for metric in memory.metrics}


def test_zero_and_non_finite_entries_are_counted_by_layer() -> None:
    network = nn.ModuleDict({"lstm": nn.LSTM(1, 1, 2), "head": nn.Linear(3, 1)})
    for weight in network.parameters():
        weight.grad = torch.ones_like(weight)
    network["head"].weight.grad = torch.tensor([[0.0, float("inf"), float("nan")]])  # and a bias of 1
    network["lstm"].weight_hh_l1.grad = torch.zeros(4, 1)  # 4 of the 16 entries of layer 1
    got = record(Memory(), network, scale=4.0)
    assert got["gradient/zero_share/head"] == 0.25
    assert got["gradient/nonfinite/head"] == 2.0
    assert got["gradient/zero_share/lstm.l0"] == 0.0
    assert got["gradient/zero_share/lstm.l1"] == 0.25
    assert got["gradient/nonfinite/lstm.l1"] == 0.0
    assert (got["step/loss"], got["gradient/norm"], got["amp/loss_scale"], got["step/lr"]) == (1.0, 2.0, 4.0, 0.1)


@pytest.mark.parametrize(("scale", "share"), [(1.0, 0.5), (65536.0, 0.25)])
def test_entries_below_fp16s_normal_range_are_counted_at_the_loss_scale(scale: float, share: float) -> None:
    network = nn.ModuleDict({"head": nn.Linear(4, 1, bias=False)})
    # times 2^16: 0, 2^-15 (below 2^-14), 2^-14 (not below), 2^2; as they are, only the last is not below
    network["head"].weight.grad = torch.tensor([[0.0, -(2.0**-31), 2.0**-30, 2.0**-14]])
    got = record(Memory(), network, scale=scale)
    assert got["gradient/zero_share/head"] == 0.25
    assert got["gradient/subnormal_share/head"] == share


def test_the_update_ratio_is_that_of_the_weights_before_and_after() -> None:
    network = nn.ModuleDict({"head": nn.Linear(2, 1), "skip": nn.Linear(2, 1)})
    for weight in network.parameters():
        weight.grad = torch.ones_like(weight)
        weight.data.fill_(2.0)

    def move() -> None:
        network.get_parameter("head.weight").data += torch.tensor([[3.0, -4.0]])

    got = record(Memory(), network, move=move)
    assert got["update/ratio/head"] == pytest.approx(5.0 / 12.0**0.5)
    assert got["update/ratio/skip"] == 0.0


def test_layers_are_named_after_their_parameters() -> None:
    assert layer_of("lstm.weight_hh_l2") == layer_of("lstm.bias_ih_l2") == "lstm.l2"
    assert layer_of("head.0.weight") == layer_of("head.0.bias") == "head.0"


def test_the_first_and_every_nth_step_is_recorded() -> None:
    memory = Memory()
    fit(tiny_dataset(), TRAIN.model_copy(update={"log_every": 5, "epochs": 2}), tracker=memory)
    steps = [metric.step for metric in memory.metrics if metric.name == "step/loss"]
    assert steps == [1, 5, 10, 15]


def test_the_record_of_a_training_adds_up() -> None:
    memory = Memory()
    train = TRAIN.model_copy(update={"clip_norm": 0.05})
    fit(tiny_dataset(), train, tracker=memory)
    norms, clipped = memory.series("gradient/norm"), memory.series("gradient/norm_clipped")
    assert all(
        after == pytest.approx(min(before, 0.05), rel=1e-3) for before, after in zip(norms, clipped, strict=True)
    )
    shares = memory.series("gradient/clipped_share")
    hits = 0
    for tried, (norm, share) in enumerate(zip(norms, shares, strict=True), start=1):
        hits += norm > 0.05
        assert share == pytest.approx(hits / tried)
    assert min(memory.series("memory/peak_mib")) > 10.0
    assert memory.series("epoch_s")[0] > 0.0
    epochs = [metric.step for metric in memory.metrics if metric.name == "val_loss"]
    assert epochs == [1, 2, 3]


def test_metrics_are_handed_over_in_batches() -> None:
    memory = Memory()
    fit(tiny_dataset(), TRAIN.model_copy(update={"epochs": 2}), tracker=memory)
    assert len(memory.calls) == 4  # two epochs: the record, then the epoch's own
    assert max(memory.calls) <= BATCH


def test_pace_measures_the_last_steps_only() -> None:
    now = [0.0]
    pace = Pace(window=2, clock=lambda: now[0])
    assert (pace.bars_per_s, pace.eta_s(5)) == (0.0, 0.0)
    pace.begin()
    for seconds in (100.0, 1.0, 3.0):
        now[0] += 0.25 * seconds
        assert pace.ready() == pytest.approx(0.25 * seconds)
        now[0] += 0.75 * seconds
        pace.end(10)
    assert pace.loader_share == pytest.approx(0.25)
    assert pace.bars_per_s == pytest.approx(20 / 4)
    assert pace.eta_s(5) == pytest.approx(10.0)


def test_peak_memory_is_that_of_this_process() -> None:
    before = peak_mib(CPU)
    block = torch.ones(int(before) + 64, 2**18)  # floats: one MiB a row, more than the peak so far
    assert peak_mib(CPU) >= 0.9 * block.nbytes / 2**20
