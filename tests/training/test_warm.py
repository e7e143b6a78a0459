"""In: a model and a new run that begins from it. Out: its weights and scaler, nothing else of it; or why not."""

from __future__ import annotations

import logging
import signal
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from klinepred.dataset.make import Dataset
from klinepred.dataset.scale import Scaler
from klinepred.errors import ModelError, TrainingError, UsageError
from klinepred.features.build import F50
from klinepred.model.bundle import ModelBundle, load_bundle, save_bundle
from klinepred.model.ensemble import members_of
from klinepred.model.forward import forward_rows
from klinepred.paths import Workspace
from klinepred.settings import ModelSettings
from klinepred.training.checkpoint import load_checkpoint
from klinepred.training.loop import train
from klinepred.training.signals import TrainingStopped
from klinepred.training.tracking import MlflowTracker
from klinepred.training.warm import check_start, drifted, kept_scaler
from tests.training.tiny import MODEL, TRAIN, Diary, equal, fit, tiny_dataset, tiny_pipeline, weights

STILL = TRAIN.model_copy(update={"epochs": 1, "lr": 1e-12, "weight_decay": 0.0, "ema": 0.0})
"""Training that moves no weight by more than rounding."""


@pytest.fixture(scope="module")
def data() -> Dataset:
    return tiny_dataset()


@pytest.fixture(scope="module")
def first(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> ModelBundle:
    bundle = fit(data, TRAIN.model_copy(update={"epochs": 2}))
    return load_bundle(save_bundle(bundle, tmp_path_factory.mktemp("first") / "first"))


def test_it_begins_from_the_weights_and_from_nothing_else(data: Dataset, first: ModelBundle, tmp_path: Path) -> None:
    place = tmp_path / "run.pt"
    second = fit(data, STILL, init_from=first, checkpoint=place)
    for name, weight in weights(second).items():
        assert torch.allclose(weight, weights(first)[name], atol=1e-6)
    saved = load_checkpoint(place)
    assert saved["counters"]["tried"] == 8  # one epoch of its own
    assert all(int(moments["step"]) == 8 for moments in saved["optimiser"]["state"].values())
    cold = fit(data, STILL)
    assert not all(torch.allclose(weights(cold)[name], weight, atol=1e-3) for name, weight in weights(first).items())


def test_before_its_first_step_it_answers_as_the_model(data: Dataset, first: ModelBundle) -> None:
    second = fit(data, STILL, init_from=first)
    cut = data.sequences
    want_N = forward_rows(first.network, data.x_NF, cut)
    assert forward_rows(second.network, data.x_NF, cut) == pytest.approx(want_N, abs=1e-5, nan_ok=True)
    assert second.scaler.to_dict() == first.scaler.to_dict()


def test_it_learns_on_and_says_where_it_came_from(data: Dataset, first: ModelBundle) -> None:
    named = replace(first, provenance={**first.provenance, "run_id": "abc123"})
    second = fit(data, TRAIN, init_from=named)
    assert not equal(weights(second), weights(first))
    assert second.provenance["init_from"] == {
        "model": "first",
        "run_id": "abc123",
        "members": 1,
        "train_end": "2026-01-16",
    }
    assert "init_from" not in first.provenance


@pytest.mark.parametrize(
    "change", [{"hidden": 9}, {"layers": 1}, {"head": 5}, {"layer_norm": True}, {"skip": True}], ids=str
)
def test_another_architecture_is_refused_by_name(change: dict[str, Any], data: Dataset, first: ModelBundle) -> None:
    model = ModelSettings.model_validate({**MODEL.model_dump(), **change})
    with pytest.raises(ModelError, match="another architecture") as caught:
        train(data, model, TRAIN, init_from=first)
    ((key, value),) = change.items()
    assert f"model.{key} = {value}" in caught.value.expected
    assert f"{key} = {getattr(MODEL, key)}" in caught.value.got


def test_dropout_and_the_name_of_the_preset_may_differ(data: Dataset, first: ModelBundle) -> None:
    model = MODEL.model_copy(update={"dropout": 0.4, "preset": "mine"})
    assert train(data, model, STILL, init_from=first).model.dropout == 0.4


def test_other_features_are_refused_by_name(first: ModelBundle) -> None:
    marks = {**F50.marks}
    gone = F50.names[3]
    del marks[gone]
    other = replace(first, fingerprint="0" * 16, marks=marks, feature_names=tuple(marks))
    with pytest.raises(ModelError, match="other features") as caught:
        check_start(other, model=MODEL, features=F50, train=TRAIN)
    assert gone in caught.value.got


def test_what_the_run_is_graded_on_may_not_have_been_seen(data: Dataset, first: ModelBundle) -> None:
    for split in (
        replace(first.split, train_end=date(2026, 1, 17)),
        replace(first.split, validation_end=date(2026, 1, 20)),
    ):
        with pytest.raises(TrainingError, match="has seen labels") as caught:
            fit(data, STILL, init_from=replace(first, split=split))
        assert "2026-01-16" in caught.value.expected
    earlier = replace(first.split, train_end=date(2026, 1, 10), validation_end=date(2026, 1, 12))
    fit(data, STILL, init_from=replace(first, split=earlier))


def test_inputs_in_other_units_are_refused(data: Dataset, first: ModelBundle) -> None:
    scaler = Scaler(first.scaler.names, first.scaler.centre_F + 1.0, first.scaler.scale_F, first.scaler.clip)
    with pytest.raises(TrainingError, match="other units") as caught:
        fit(data, STILL, init_from=replace(first, scaler=scaler))
    assert "scaler=bundle.scaler" in caught.value.do


def test_features_that_have_drifted_from_the_scaler_are_named(
    first: ModelBundle, caplog: pytest.LogCaptureFixture
) -> None:
    data = tiny_dataset()
    assert drifted(data) == []
    data.x_NF[:, 4] += 0.8
    data.x_NF[:, 7] *= 2.0
    data.x_NF[:, 9] = 0.0  # constant or masked: no drift that could be told
    data.x_NF[data.part_N != 0, 11] += 5.0  # later than the train rows
    with caplog.at_level(logging.WARNING, logger="klinepred"):
        fit(data, STILL, init_from=first)
    (line,) = [record.getMessage() for record in caplog.records if "drifted" in record.getMessage()]
    assert "2 of 50 features" in line
    assert f"{F50.names[4]} (mean +0.8" in line
    assert f"{F50.names[7]} (mean" in line
    x_N = data.x_NF[data.part_N == 0, 7].astype(float)
    assert f"spread {x_N.std():.2f})" in line


def test_another_target_is_said(data: Dataset, first: ModelBundle, caplog: pytest.LogCaptureFixture) -> None:
    raw = replace(first, dataset=first.dataset.model_copy(update={"target": "raw"}))
    with caplog.at_level(logging.WARNING, logger="klinepred"):
        fit(data, STILL, init_from=raw)
    assert "dataset.target = relative, there it was raw" in caplog.text


def test_init_from_and_resume_together_are_a_usage_error(data: Dataset, first: ModelBundle, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--init-from first with --resume") as caught:
        fit(data, STILL, init_from=first, resume=tmp_path / "run.pt")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_warm_run_resumes_to_the_same_bits(seeds: int, data: Dataset, first: ModelBundle, tmp_path: Path) -> None:
    settings = TRAIN.model_copy(update={"epochs": 2, "ensemble": seeds})
    want = fit(data, settings, init_from=first)
    place = tmp_path / "run.pt"
    stopper = Diary(at_step=3, then=lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(TrainingStopped):
        fit(data, settings, init_from=first, checkpoint=place, progress=stopper)
    kept = kept_scaler(place)
    assert kept is not None
    assert kept.to_dict() == first.scaler.to_dict()
    again = fit(data, settings, resume=place)
    assert equal(weights(again), weights(want))
    assert again.provenance["init_from"] == want.provenance["init_from"]


def test_a_run_of_its_own_keeps_no_scaler(data: Dataset, tmp_path: Path) -> None:
    fit(data, STILL, checkpoint=tmp_path / "run.pt")
    assert kept_scaler(tmp_path / "run.pt") is None


def test_an_ensemble_begins_member_from_member(data: Dataset, first: ModelBundle) -> None:
    two = fit(data, TRAIN.model_copy(update={"epochs": 1, "ensemble": 2}))
    second = fit(data, STILL.model_copy(update={"ensemble": 2}), init_from=two)
    for old, new in zip(members_of(two.network), members_of(second.network), strict=True):
        for name, weight in new.state_dict().items():
            assert np.allclose(weight.numpy(), old.state_dict()[name].numpy(), atol=1e-6)
    both = members_of(fit(data, STILL.model_copy(update={"ensemble": 2}), init_from=first).network)
    assert all(torch.allclose(both[0].state_dict()[n], both[1].state_dict()[n], atol=1e-6) for n in weights(first))
    with pytest.raises(ModelError, match="an ensemble") as caught:
        fit(data, STILL, init_from=two)
    assert "2 networks" in caught.value.got


def test_mlflow_says_what_a_run_began_from(data: Dataset, first: ModelBundle, tmp_path: Path) -> None:
    tracker = MlflowTracker(Workspace(tmp_path), tiny_pipeline(TRAIN))
    stopper = Diary(at_step=3, then=lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(TrainingStopped):
        fit(data, TRAIN, tracker=tracker, init_from=first, progress=stopper)
    assert tracker.client.get_run(tracker.run_id).data.params["init_from"] == "first"
    again = MlflowTracker(Workspace(tmp_path), tiny_pipeline(TRAIN))
    fit(data, TRAIN, tracker=again, resume=tracker.checkpoint)
    assert again.run_id == tracker.run_id
