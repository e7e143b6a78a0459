"""In: what went wrong elsewhere with mixed precision and LSTMs. Out: each fault tried here, with the right numbers."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from klinepred.config import load_pipeline
from klinepred.dataset.make import Dataset
from klinepred.model.bundle import load_bundle, save_bundle
from klinepred.model.forward import forward_rows
from klinepred.model.lstm import Network
from klinepred.settings import TrainSettings
from klinepred.training.average import WeightAverage
from klinepred.training.checkpoint import load_checkpoint
from klinepred.training.precision import Precision
from klinepred.training.signals import TrainingStopped
from klinepred.training.step import take_step
from tests.training.tiny import MODEL, TRAIN, Diary, Memory, equal, fit, tiny_dataset, weights

TEN = TRAIN.model_copy(update={"epochs": 10})


@pytest.fixture(scope="module")
def data() -> Dataset:
    return tiny_dataset(symbols=3)


class Pair(nn.Module):
    """Two weights at zero; `step` gives them any gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))

    def forward(self, x_BTF: torch.Tensor) -> torch.Tensor:
        return (x_BTF * self.weight).sum(-1, keepdim=True)


@pytest.mark.parametrize(
    ("gradient", "want"), [((3.0, 4.0), (0.6, 0.8)), ((0.003, 0.004), (0.003, 0.004))], ids=["clipped", "not clipped"]
)
def test_39_gradients_are_unscaled_before_they_are_clipped(
    gradient: tuple[float, float], want: tuple[float, float]
) -> None:
    network = Pair()
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    # mean of (0 - y)^2 with y = -1/2 has the slope 1 in its forecast, so the gradient is the input
    batch = torch.tensor([[gradient]]), torch.full((1, 1), -0.5), torch.ones(1, 1, dtype=torch.bool)
    result = take_step(
        network,
        torch.optim.AdamW(network.parameters()),
        scaler,
        batch,
        precision=Precision("fp32", "cpu", None, scaled=True, reason=""),
        train=TrainSettings(clip_norm=1.0),
    )
    assert network.weight.grad is not None
    assert network.weight.grad.tolist() == pytest.approx(want, rel=1e-5)
    assert result.norm == pytest.approx((gradient[0] ** 2 + gradient[1] ** 2) ** 0.5)  # 5, not 327680


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_41_ten_epochs_and_five_plus_five_are_the_same(precision: str, data: Dataset, tmp_path: Path) -> None:
    train = TEN.model_copy(update={"precision": precision, "init_scale": 2.0**24, "growth_interval": 9})
    whole, parts = Memory(), Memory()
    want = weights(fit(data, train, tracker=whole))
    place = tmp_path / "run.pt"
    fifth = 5 * len(whole.series("step/loss")) // 10
    stopper = Diary(at_step=fifth, then=lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(TrainingStopped):
        fit(data, train, tracker=parts, progress=stopper, checkpoint=place)
    assert bool(load_checkpoint(place)["scaler"]) == (precision == "fp16")
    assert equal(weights(fit(data, train, tracker=parts, resume=place)), want)
    for name in ("train_loss", "val_loss", "amp/loss_scale", "step/lr"):
        assert parts.series(name) == whole.series(name)
    if precision == "fp16":
        assert whole.series("amp/skipped_steps")[-1] > 0
        assert len(set(whole.series("amp/loss_scale")[fifth:])) > 1  # it grew again after the resume


@pytest.mark.parametrize(("before", "after"), [("fp16", "fp32"), ("fp32", "fp16"), ("bf16", "fp16"), ("fp16", "bf16")])
def test_41_a_checkpoint_goes_from_one_kind_of_device_to_the_other_with_a_word(
    before: str, after: str, data: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "run.pt"
    fit(data, TRAIN.model_copy(update={"precision": before, "epochs": 1}), checkpoint=place)
    if before == "fp16":  # as a run on CUDA would have left it
        torch.save({**torch.load(place), "rng_cuda": torch.get_rng_state()}, place)
    memory = Memory()
    with caplog.at_level(logging.WARNING):
        fit(data, TRAIN.model_copy(update={"precision": after, "epochs": 2}), resume=place, tracker=memory)
    assert memory.status == "FINISHED"
    assert f"until here the run was in {before}, it goes on in {after}" in caplog.text
    if after == "fp16":
        assert "the loss scale starts afresh at 65536" in caplog.text
    if before == "fp16":
        assert "loss scale is not needed in this precision" in caplog.text
        assert "another kind of device" in caplog.text


def test_43_training_on_a_cpu_is_float32_without_autocast_scaler_or_warning(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, torch.dtype]] = []
    true: Callable[..., torch.Tensor] = Network.forward

    def spied(self: Network, x_BTF: torch.Tensor) -> torch.Tensor:
        out = true(self, x_BTF)
        seen.append((torch.is_autocast_enabled("cpu"), out.dtype))
        return out

    monkeypatch.setattr(Network, "forward", spied)
    plain = load_pipeline("us-equities-5m").train.model_copy(update={"epochs": 1, "device": "cpu"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bundle = fit(data, plain)
    assert bundle.provenance["precision"] == "fp32"
    assert set(seen) == {(False, torch.float32)}


def test_45_every_file_of_torch_loads_with_default_arguments_in_a_fresh_process(data: Dataset, tmp_path: Path) -> None:
    place = tmp_path / "run.pt"
    train = TRAIN.model_copy(update={"precision": "fp16", "epochs": 2, "on_overflow": "fallback"})
    fit(data, train, checkpoint=place)
    (tmp_path / "other").mkdir()
    stop = Diary(at_step=2, then=lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(TrainingStopped):
        fit(data, TRAIN, checkpoint=tmp_path / "other" / "stopped.pt", progress=stop)
    files = sorted(map(str, tmp_path.rglob("*.pt")))
    assert len(files) == 2
    code = "import sys, torch\nfor name in sys.argv[1:]: print(torch.load(name)['counters']['best_loss'])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "inf"  # stopped in the first epoch
    assert 0.0 < float(done.stdout.split()[1]) < 10.0


def test_47_weights_stay_float32_in_one_chunk_and_nothing_warns(data: Dataset, tmp_path: Path) -> None:
    halves: list[str] = []
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("half", "bfloat16"):
            patch.setattr(nn.Module, name, lambda self, name=name: halves.append(name))
        train = TRAIN.model_copy(update={"precision": "fp16", "epochs": 2})
        bundle = load_bundle(save_bundle(fit(data, train, checkpoint=tmp_path / "run.pt"), tmp_path / "model"))
        forward_rows(bundle.network, data.x_NF, data.part("test"))
    assert halves == []
    assert {weight.dtype for weight in bundle.network.parameters()} == {torch.float32}
    table = load_checkpoint(tmp_path / "run.pt")
    assert {weight.dtype for name in ("network", "average", "best") for weight in table[name].values()} == {
        torch.float32
    }


def test_47_a_copy_of_a_network_puts_its_weights_in_one_chunk_again(monkeypatch: pytest.MonkeyPatch) -> None:
    flattened: list[int] = []
    monkeypatch.setattr(nn.RNNBase, "flatten_parameters", lambda self: flattened.append(id(self)))
    network: Any = Network(MODEL, inputs=3)
    flattened.clear()
    average: Any = WeightAverage(network, decay=0.9)
    assert flattened == [id(average.network.lstm)]
