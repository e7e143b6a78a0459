"""In: checkpoints that are damaged, or lack what they should hold. Out: one message each; nothing learns from them."""

from __future__ import annotations

import copy
import logging
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from klinepred.dataset.make import Dataset
from klinepred.errors import TrainingError
from klinepred.settings import EvaluateSettings, TrainSettings
from klinepred.training.checkpoint import load_checkpoint
from tests.training.tiny import TRAIN, Memory, fit, tiny_dataset, tiny_pipeline

ONE = TRAIN.model_copy(update={"epochs": 1})


@pytest.fixture(scope="module")
def data() -> Dataset:
    return tiny_dataset()


@pytest.fixture(scope="module")
def saved(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("checkpoint") / "run.pt"
    fit(data, ONE, checkpoint=place, pipeline=tiny_pipeline(ONE))
    return place


def test_one_bit_that_is_wrong_in_any_part_is_noticed(saved: Path, tmp_path: Path) -> None:
    """torch.load itself does not look at checksums: a weight of 0.1 would become one of 1e37, and nobody would know."""
    raw, place = saved.read_bytes(), tmp_path / "flipped.pt"
    with zipfile.ZipFile(saved) as parts:
        entries = parts.infolist()
    assert len(entries) > 20
    for entry in entries:
        if not entry.file_size:
            continue
        at = entry.header_offset
        name, extra = (int.from_bytes(raw[at + low : at + low + 2], "little") for low in (26, 28))
        bad = bytearray(raw)
        bad[at + 30 + name + extra + entry.file_size // 2] ^= 0x40
        place.write_bytes(bytes(bad))
        with pytest.raises(TrainingError, match=r"damaged|does not load"):
            load_checkpoint(place)


@pytest.mark.parametrize(
    "key", ["network", "average", "optimiser", "scaler", "precision", "counters", "best", "rng", "pipeline", "run_id"]
)
def test_what_is_lacking_is_named(key: str, saved: Path, tmp_path: Path) -> None:
    table = load_checkpoint(saved)
    del table[key]
    torch.save(table, tmp_path / "lacking.pt")
    with pytest.raises(TrainingError, match=f"one without {key}"):
        load_checkpoint(tmp_path / "lacking.pt")


def _lacks_a_layer(table: dict[str, Any]) -> None:
    del table["network"]["lstm.weight_ih_l0"]


def _narrow(table: dict[str, Any]) -> None:
    table["network"]["lstm.weight_ih_l0"] = table["network"]["lstm.weight_ih_l0"][:3]


def _no_groups(table: dict[str, Any]) -> None:
    table["optimiser"] = {"state": {}, "param_groups": []}


def _counts_more(table: dict[str, Any]) -> None:
    table["counters"]["moons"] = 1


def _short_random_state(table: dict[str, Any]) -> None:
    table["rng"] = table["rng"][:10]


@pytest.mark.parametrize("change", [_lacks_a_layer, _narrow, _no_groups, _counts_more, _short_random_state])
def test_a_state_of_something_else_is_refused_in_words(
    change: Callable[[dict[str, Any]], None], data: Dataset, saved: Path, tmp_path: Path
) -> None:
    table = copy.deepcopy(load_checkpoint(saved))
    change(table)
    torch.save(table, tmp_path / "other.pt")
    random = torch.get_rng_state()
    with pytest.raises(TrainingError, match="the state of this very network"):
        fit(data, TRAIN, resume=tmp_path / "other.pt")
    assert torch.equal(torch.get_rng_state(), random)


def test_a_run_in_which_no_step_changed_the_weights_gives_no_model(data: Dataset) -> None:
    """From 2^120 the loss scale would have to come down for a hundred steps; one epoch has eight."""
    memory = Memory()
    settings = ONE.model_copy(update={"precision": "fp16", "init_scale": 2.0**120, "overflow_steps": 100})
    with pytest.raises(TrainingError, match="all 8 were skipped"):
        fit(data, settings, tracker=memory)
    assert memory.status == "FAILED"


def test_a_run_that_skipped_many_steps_says_so(data: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        fit(data, ONE.model_copy(update={"precision": "fp16"}))
    assert "were skipped" not in caplog.text
    with caplog.at_level(logging.WARNING):
        bundle = fit(data, TRAIN.model_copy(update={"precision": "fp16", "init_scale": 2.0**32}))
    assert f"{bundle.provenance['skipped_steps']} of 24 steps were skipped" in caplog.text


def test_a_network_that_is_far_worse_than_no_network_is_warned_of(
    data: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        fit(data, ONE)
    assert "learned nothing" not in caplog.text
    with caplog.at_level(logging.WARNING):
        bundle = fit(data, ONE.model_copy(update={"lr": 100.0}))
    part = data.y_N[(data.part_N == 1) & np.isfinite(data.y_N)].astype(np.float64)
    times = bundle.provenance["val_loss"] / np.mean(np.clip(part, -6.0, 6.0) ** 2)
    assert times > 2.0
    assert f"{times:.3g} times that of predicting 0" in caplog.text


@pytest.mark.parametrize("key", ["lr", "weight_decay", "clip_norm", "clip_value", "init_scale"])
def test_a_number_beyond_float32_is_refused_with_the_settings(key: str) -> None:
    with pytest.raises(ValueError, match=key):
        TrainSettings.model_validate({key: 1e300})


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_that_no_generator_takes_is_refused_with_the_settings(seed: int) -> None:
    for kind in (TrainSettings, EvaluateSettings):
        with pytest.raises(ValueError, match="seed"):
            kind.model_validate({"seed": seed})
