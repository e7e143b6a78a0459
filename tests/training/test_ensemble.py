"""In: tiny ensembles. Out: a member is its seed trained alone, the answer their mean, resume keeps what is done."""

from __future__ import annotations

import json
import logging
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from klinepred.config import load_pipeline
from klinepred.dataset.make import Dataset
from klinepred.dataset.split import CALIBRATION, TRAIN, VALIDATION
from klinepred.errors import TrainingError
from klinepred.model.bundle import TABLE, ModelBundle, load_bundle, save_bundle, sealed
from klinepred.model.calibration import fit_calibration
from klinepred.model.ensemble import members_of
from klinepred.model.forward import forward_outputs, forward_rows
from klinepred.paths import Workspace
from klinepred.settings import ModelSettings, TrainSettings
from klinepred.training.checkpoint import load_checkpoint
from klinepred.training.loop import train
from klinepred.training.members import check_ensemble_fits
from klinepred.training.signals import TrainingStopped
from klinepred.training.tracking import MlflowTracker
from tests.model.bundles import small_bundle
from tests.training.tiny import MODEL, Diary, Memory, equal, fit, tiny_dataset, tiny_pipeline, weights
from tests.training.tiny import TRAIN as ONE

THREE = ONE.model_copy(update={"ensemble": 3, "epochs": 2})
STEPS = 2 * 8  # two epochs of a member


@pytest.fixture(scope="module")
def data() -> Dataset:
    return tiny_dataset()


@pytest.fixture(scope="module")
def ensemble(data: Dataset) -> ModelBundle:
    return fit(data, THREE)


@pytest.fixture(scope="module")
def singles(data: Dataset) -> list[ModelBundle]:
    return [fit(data, THREE.model_copy(update={"ensemble": 1, "seed": seed})) for seed in (7, 8, 9)]


def test_each_member_is_its_seed_trained_alone(ensemble: ModelBundle, singles: list[ModelBundle]) -> None:
    members = members_of(ensemble.network)
    assert len(members) == 3
    for member, single in zip(members, singles, strict=True):
        assert equal(dict(member.state_dict()), weights(single))
    assert [part["seed"] for part in ensemble.provenance["members"]] == [7, 8, 9]
    assert [part["val_loss"] for part in ensemble.provenance["members"]] == [s.provenance["val_loss"] for s in singles]
    assert ensemble.provenance["steps"] == 3 * STEPS


def test_the_answer_is_the_mean_of_separate_forward_passes(
    data: Dataset, ensemble: ModelBundle, singles: list[ModelBundle], tmp_path: Path
) -> None:
    each = [forward_rows(single.network, data.x_NF, data.sequences).astype(np.float64) for single in singles]
    want_N = np.mean(each, axis=0)
    assert np.std(each, axis=0)[data.mask("test")].min() > 0.0
    got_N = forward_rows(ensemble.network, data.x_NF, data.sequences)
    assert got_N == pytest.approx(want_N, abs=1e-6, nan_ok=True)
    back = load_bundle(save_bundle(ensemble, tmp_path / "m"))
    assert len(members_of(back.network)) == 3
    assert not any(module.training for module in back.network.modules())
    assert np.array_equal(forward_rows(back.network, data.x_NF, data.sequences), got_N, equal_nan=True)
    one_by_one = forward_rows(back.network, data.x_NF, data.sequences, steps=1)
    assert one_by_one == pytest.approx(got_N, abs=1e-6, nan_ok=True)


def test_interval_and_probability_are_those_of_the_mean(
    data: Dataset, ensemble: ModelBundle, singles: list[ModelBundle]
) -> None:
    pred_N = np.mean([forward_rows(s.network, data.x_NF, data.sequences) for s in singles], axis=0)
    want = fit_calibration(
        pred_N,
        data.raw_N,
        data.kind_N,
        time_N=data.rows.get_column("ts").to_physical().to_numpy(),
        held=data.part_N == CALIBRATION,
        spare=data.part_N == VALIDATION,
        train=data.part_N == TRAIN,
    ).kinds[0]
    got = ensemble.calibration.kinds[0]
    assert got is not None
    assert want is not None
    assert (got.lo, got.hi, got.slope) == pytest.approx((want.lo, want.hi, want.slope), abs=1e-5)


def test_quantiles_of_an_ensemble_are_the_mean_and_rise(data: Dataset) -> None:
    model = ModelSettings.model_validate({**MODEL.model_dump(), "quantiles": [0.1, 0.5, 0.9]})
    bundle = train(data, model, THREE.model_copy(update={"ensemble": 2, "epochs": 1, "loss": "quantile"}))
    out_NO = forward_outputs(bundle.network, data.x_NF, data.part("test"))[data.mask("test")]
    each = [
        forward_outputs(member, data.x_NF, data.part("test"))[data.mask("test")]
        for member in members_of(bundle.network)
    ]
    assert out_NO == pytest.approx(np.mean(each, axis=0), abs=1e-6)
    assert (np.diff(out_NO[:, 1:], axis=1) > 0).all()


@pytest.mark.parametrize("step", [3, STEPS + 3])
def test_resume_equals_uninterrupted_and_trains_no_member_twice(
    step: int, data: Dataset, ensemble: ModelBundle, tmp_path: Path
) -> None:
    place = tmp_path / "run.pt"
    stopper = CountingDiary(stop_after=step)
    with pytest.raises(TrainingStopped, match=rf"member {1 + step // STEPS} of 3") as stopped:
        fit(data, THREE, progress=stopper, checkpoint=place)
    assert str(place) in stopped.value.do
    rest = CountingDiary()
    again = fit(data, THREE, progress=rest, resume=place)
    assert equal(weights(again), weights(ensemble))
    assert step + rest.count == 3 * STEPS
    third = CountingDiary()
    left = place.with_name("run.members") / "member-2.pt"
    left.touch()  # by a kill between keeping the member and removing its state
    assert equal(weights(fit(data, THREE, progress=third, resume=place)), weights(ensemble))
    assert not left.exists()
    assert third.count == 0  # all had finished
    wider = fit(data, THREE.model_copy(update={"ensemble": 4}), progress=third, resume=place)
    assert third.count == STEPS  # one more seed costs one member
    assert [part["seed"] for part in wider.provenance["members"]] == [7, 8, 9, 10]


class CountingDiary(Diary):
    """Counts steps over all members; a signal after some of them."""

    def __init__(self, *, stop_after: int = -1) -> None:
        super().__init__()
        self.count, self._stop_after = 0, stop_after

    def step(self, news: Any) -> None:
        self.count += 1
        if self.count == self._stop_after:
            signal.raise_signal(signal.SIGINT)


def test_what_does_not_continue_an_ensemble_is_refused(data: Dataset, tmp_path: Path) -> None:
    two = ONE.model_copy(update={"ensemble": 2, "epochs": 1})
    one = two.model_copy(update={"ensemble": 1})
    fit(data, two, checkpoint=tmp_path / "two.pt")
    fit(data, one, checkpoint=tmp_path / "one.pt")
    with pytest.raises(TrainingError, match="another number of networks"):
        fit(data, one, resume=tmp_path / "two.pt")
    with pytest.raises(TrainingError, match=r"train\.ensemble = 2") as caught:
        fit(data, two, resume=tmp_path / "one.pt")
    assert "a single network" in caught.value.got
    for change in ({"seed": 8}, {"epochs": 2}, {"lr": 1e-3}):
        with pytest.raises(TrainingError, match="other settings"):
            fit(data, two.model_copy(update=change), resume=tmp_path / "two.pt")
    with pytest.raises(TrainingError, match="other data"):
        fit(tiny_dataset(seed=1), two, resume=tmp_path / "two.pt")


@pytest.mark.parametrize(("key", "other"), [("hidden", 9), ("dropout", 0.3), ("skip", True)])
def test_members_that_have_not_begun_do_not_become_other_networks_than_those_that_have_ended(
    key: str, other: object, data: Dataset, tmp_path: Path
) -> None:
    two = ONE.model_copy(update={"ensemble": 2, "epochs": 1})
    place = tmp_path / "run.pt"
    fit(data, two, checkpoint=place)
    shutil.rmtree(place.with_name("run.members") / "member-2")  # as it was when the first had ended
    model = ModelSettings.model_validate({**MODEL.model_dump(), key: other})
    with pytest.raises(TrainingError, match="another network") as caught:
        train(data, model, two, resume=place)
    assert (caught.value.expected, caught.value.got) == (f"{key} = {getattr(MODEL, key)}", f"{key} = {other}")
    clipped = replace(data, settings=data.settings.model_copy(update={"label_clip": 2.0}))
    with pytest.raises(TrainingError, match="another loss"):
        fit(clipped, two, resume=place)


def test_an_ensemble_resumed_in_another_precision_says_so_even_between_two_members(
    data: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    two = ONE.model_copy(update={"ensemble": 2, "epochs": 1})
    place = tmp_path / "run.pt"
    fit(data, two, checkpoint=place)
    shutil.rmtree(place.with_name("run.members") / "member-2")
    with caplog.at_level(logging.WARNING):
        bundle = fit(data, two.model_copy(update={"amp": True}), resume=place)
    assert "train.amp = True, before False: members that had finished keep theirs" in caplog.text
    assert [part["precision"] for part in bundle.provenance["members"]] == ["fp32", "bf16"]


def test_an_ensemble_resumed_by_another_number_of_processes_says_so(data: Dataset, tmp_path: Path) -> None:
    two = ONE.model_copy(update={"ensemble": 2, "epochs": 1})
    fit(data, two, checkpoint=tmp_path / "run.pt")
    saved = load_checkpoint(tmp_path / "run.pt")
    assert check_ensemble_fits(saved, data=data, model=MODEL, train=two, world=1) == []
    (said,) = check_ensemble_fits(saved, data=data, model=MODEL, train=two, world=3)
    assert said == (
        "resumed by 3 processes, before 1: members to come take 30 sequences a step, those that had finished took 10"
    )


def test_a_new_ensemble_takes_no_member_of_an_old_one(data: Dataset, tmp_path: Path) -> None:
    two = ONE.model_copy(update={"ensemble": 2, "epochs": 1})
    place = tmp_path / "run.pt"
    fit(data, two.model_copy(update={"lr": 1e-5}), checkpoint=place)
    assert equal(weights(fit(data, two, checkpoint=place)), weights(fit(data, two)))


def test_the_record_has_the_scores_of_the_mean_and_of_each_member(data: Dataset) -> None:
    memory = Memory()
    bundle = fit(data, THREE, tracker=memory)
    assert memory.status == "FINISHED"
    assert memory.series("ensemble/val_loss") == [bundle.provenance["val_loss"]]
    assert memory.series("member/val_loss") == [part["val_loss"] for part in bundle.provenance["members"]]
    mask_N = data.mask("validation")
    pred_N = forward_rows(bundle.network, data.x_NF, data.part("validation"))[mask_N].astype(float)
    want = float(((pred_N - np.clip(data.y_N[mask_N], -6, 6)) ** 2).mean())
    assert bundle.provenance["val_loss"] == pytest.approx(want, rel=1e-6)


def test_mlflow_shows_one_run_and_below_it_one_for_each_seed(data: Dataset, tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    two = ONE.model_copy(update={"ensemble": 2, "epochs": 1})
    tracker = MlflowTracker(space, tiny_pipeline(two))
    stopper = CountingDiary(stop_after=10)
    with pytest.raises(TrainingStopped) as stopped:
        fit(data, two, tracker=tracker, progress=stopper)
    assert tracker.checkpoint is not None
    assert stopped.value.do == f"continue with --resume {tracker.checkpoint.stem}"
    parent = tracker.client.get_run(tracker.run_id)
    assert parent.info.status == "KILLED"
    again = MlflowTracker(space, tiny_pipeline(two))
    bundle = fit(data, two, tracker=again, resume=tracker.checkpoint)
    assert bundle.run_id == again.run_id == tracker.run_id
    runs = tracker.client.search_runs([parent.info.experiment_id])
    children = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == tracker.run_id]
    assert len(runs) == 3
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert sorted(run.info.run_name for run in children) == [f"{tracker.run_name}-member-{n}" for n in (1, 2)]
    assert sorted(run.data.params["train.seed"] for run in children) == ["7", "8"]
    assert sorted(part["run_id"] for part in bundle.provenance["members"]) == sorted(r.info.run_id for r in children)
    assert {"ensemble/val_ic", "member/val_loss"} <= tracker.client.get_run(tracker.run_id).data.metrics.keys()


def test_a_bundle_of_the_first_format_still_loads(tmp_path: Path) -> None:
    bundle = small_bundle()
    folder = save_bundle(bundle, tmp_path / "m")
    table = json.loads((folder / TABLE).read_text())
    del table["members"]
    for key in ("layer_norm", "skip", "flatten", "quantiles"):
        del table["model"][key]
    (folder / TABLE).write_text(json.dumps(sealed({**table, "klinepred_bundle": 1})))
    back = load_bundle(folder)
    assert equal(weights(back), weights(bundle))
    assert back.model == bundle.model


def test_an_ensemble_with_a_member_missing_is_refused(ensemble: ModelBundle, tmp_path: Path) -> None:
    from klinepred.errors import ModelError

    folder = save_bundle(ensemble, tmp_path / "m")
    table = json.loads((folder / TABLE).read_text())
    (folder / TABLE).write_text(json.dumps(sealed({**table, "members": 2})))
    with pytest.raises(ModelError, match="does not fit"):
        load_bundle(folder)


def test_an_ensemble_of_one_is_one_network(data: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="klinepred"):
        bundle = fit(data, TrainSettings.model_validate({**ONE.model_dump(), "epochs": 1, "ensemble": 1}))
    assert len(members_of(bundle.network)) == 1
    assert "member" not in caplog.text
    assert load_pipeline("demo").train.ensemble == 1
