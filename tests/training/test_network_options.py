"""In: tiny trainings with every option of the network. Out: they learn, resume to the bit, answer alike once saved."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from klinepred.dataset.make import Dataset
from klinepred.dataset.sequences import cut_sequences
from klinepred.errors import ConfigError
from klinepred.model.bundle import load_bundle, save_bundle
from klinepred.model.forward import forward_outputs
from klinepred.model.lstm import build_network
from klinepred.settings import ModelSettings, TrainSettings
from klinepred.training.average import WeightAverage
from klinepred.training.checkpoint import load_checkpoint
from klinepred.training.loop import train
from klinepred.training.signals import TrainingStopped
from tests.training.tiny import BARS, MODEL, SESSIONS, SYMBOLS, TRAIN, Diary, equal, tiny_dataset, weights

ALL: dict[str, Any] = {"layer_norm": True, "skip": True, "quantiles": [0.2, 0.5, 0.8]}
WINDOW = 7


def windows(symbols: int = SYMBOLS) -> Dataset:
    """The tiny dataset cut into windows of 7 bars."""
    data = tiny_dataset(symbols=symbols)
    settings = data.settings.model_copy(update={"cut": "window", "window": WINDOW})
    symbol_N = np.repeat(np.arange(symbols), SESSIONS * BARS)
    session_N = np.tile(np.repeat(np.arange(SESSIONS), BARS), symbols)
    slot_N = session_N * 1000 + np.tile(np.arange(BARS), symbols * SESSIONS)
    return replace(data, settings=settings, sequences=cut_sequences(symbol_N, slot_N, session_N, settings))


def case(options: dict[str, Any]) -> tuple[Dataset, ModelSettings, TrainSettings]:
    model = ModelSettings.model_validate({**MODEL.model_dump(), **options})
    settings = TRAIN.model_copy(update={"loss": "quantile" if model.quantiles else "mse", "epochs": 2, "batch": 40})
    return (windows() if model.flatten else tiny_dataset()), model, settings


@pytest.mark.parametrize("options", [ALL, {"flatten": WINDOW}, {**ALL, "flatten": WINDOW}], ids=str)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_resume_equals_uninterrupted_with_every_option(options: dict[str, Any], precision: str, tmp_path: Path) -> None:
    data, model, settings = case(options)
    settings = settings.model_copy(update={"precision": precision})
    want = weights(train(data, model, settings))
    place = tmp_path / "run.pt"
    stopper = Diary(at_step=3, then=lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(TrainingStopped):
        train(data, model, settings, progress=stopper, checkpoint=place)
    assert equal(weights(train(data, model, settings, resume=place)), want)


@pytest.mark.parametrize("options", [ALL, {**ALL, "flatten": WINDOW}], ids=str)
def test_the_network_of_training_is_the_one_of_the_saved_bundle(options: dict[str, Any], tmp_path: Path) -> None:
    data, model, settings = case(options)
    place = tmp_path / "run.pt"
    bundle = train(data, model, settings, checkpoint=place)
    trained = build_network(model, inputs=data.x_NF.shape[1])
    trained.load_state_dict(load_checkpoint(place)["best"])
    cut = data.part("test")
    want_NO = forward_outputs(trained, data.x_NF, cut)
    assert np.isfinite(want_NO[data.mask("test")]).all()
    for one in (bundle, load_bundle(save_bundle(bundle, tmp_path / "m"))):
        assert np.array_equal(forward_outputs(one.network, data.x_NF, cut), want_NO, equal_nan=True)


def test_a_window_network_learns() -> None:
    _, model, settings = case({"flatten": WINDOW})
    data = windows(5 * SYMBOLS)  # a label per window, not per bar: few of them
    bundle = train(data, model, settings.model_copy(update={"epochs": 6, "ema": 0.0, "lr": 2e-2, "batch": 10}))
    mask_N = data.mask("test")
    pred_N = forward_outputs(bundle.network, data.x_NF, data.part("test"))[:, 0]
    assert mask_N.sum() == 5 * SYMBOLS * 3 * (BARS - WINDOW)
    assert np.corrcoef(pred_N[mask_N], data.x_NF[mask_N, 0])[0, 1] > 0.5


def test_a_dataset_that_does_not_fit_is_refused_before_the_start() -> None:
    _, model, settings = case({"flatten": WINDOW})
    with pytest.raises(ConfigError, match="reads 7 bars at once"):
        train(tiny_dataset(), model, settings)


def test_the_average_of_every_weight_follows_its_formula() -> None:
    network = build_network(ModelSettings.model_validate({**MODEL.model_dump(), **ALL}), inputs=3)
    average = WeightAverage(network, decay=0.9)
    want = {name: weight.numpy().astype(np.float64) for name, weight in network.state_dict().items()}
    assert {"norm.weight", "norm.bias", "skip.weight"} <= want.keys()
    torch.manual_seed(0)
    for step in range(1, 60):
        with torch.no_grad():
            for weight in network.parameters():
                weight.add_(torch.randn_like(weight))
        average.update(network, step=step)
        decay = min(0.9, (1 + step) / (10 + step))
        for name, weight in network.state_dict().items():
            want[name] = decay * want[name] + (1.0 - decay) * weight.numpy()
    for name, weight in average.network.state_dict().items():
        assert weight.numpy() == pytest.approx(want[name], abs=1e-4)


def test_without_an_average_a_resumed_run_goes_on_from_the_weights(tmp_path: Path) -> None:
    data, model, settings = case({})
    place = tmp_path / "run.pt"
    train(data, model, settings.model_copy(update={"epochs": 1}), checkpoint=place)
    saved = load_checkpoint(place)
    assert not equal(saved["network"], saved["average"])
    stopper = Diary(at_step=3, then=lambda: signal.raise_signal(signal.SIGINT))
    bare = settings.model_copy(update={"ema": 0.0, "lr": 1e-12, "weight_decay": 0.0})
    with pytest.raises(TrainingStopped):
        train(data, model, bare, resume=place, progress=stopper)
    after = load_checkpoint(place)["network"]
    assert all(torch.allclose(after[name], saved["network"][name], atol=1e-6) for name in after)
