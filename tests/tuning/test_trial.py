"""In: a tiny dataset. Out: claims that a trial is a training, sees no test part, and is recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from klinepred.paths import Workspace
from klinepred.training.review import count_looks, tags_of
from klinepred.training.signals import TrainingStopped
from klinepred.training.tracking import MlflowTracker
from klinepred.tuning.space import with_values
from klinepred.tuning.study import Candidate, Tried
from klinepred.tuning.trial import Setting, run_trial
from tests.training.tiny import TRAIN, fit, tiny_dataset, tiny_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable

RUN = tiny_pipeline(TRAIN.model_copy(update={"ensemble": 2}))
DATA = tiny_dataset()


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    space = Workspace(tmp_path_factory.mktemp("wörk space"))
    parent = MlflowTracker(space, RUN)
    parent.start(RUN, params={}, tags={}, resume=None)
    parent.end("FINISHED")
    marks = {"leak_certificate": "passed"}
    return Setting(space, RUN, None, (parent.run_id, parent.run_name), marks, space.mlruns / "tune" / "study")


def tried(setting: Setting, number: int, heard: Callable[[int, float], bool], **values: float) -> Tried:
    candidate = Candidate(number, {f"train.{key}": value for key, value in values.items()})
    return run_trial(candidate, with_values(RUN, candidate.values), DATA, setting, heard=heard)


def noting(losses: list[float]) -> Callable[[int, float], bool]:
    """Keeps every loss, prunes nothing."""

    def heard(_epoch: int, loss: float) -> bool:
        losses.append(loss)
        return False

    return heard


def status(setting: Setting, run_id: str) -> str:
    from mlflow import MlflowClient

    return str(MlflowClient(tracking_uri=setting.space.tracking_uri).get_run(run_id).info.status)


def test_a_trial_is_a_training_of_one_network_below_the_study(setting: Setting) -> None:
    losses: list[float] = []

    def heard(epoch: int, loss: float) -> bool:
        losses.append(loss)
        return epoch == TRAIN.epochs  # after the last one nothing is left to prune

    done = tried(setting, 1, heard, lr=0.02)
    wanted = fit(DATA, TRAIN.model_copy(update={"lr": 0.02}))
    assert (done.outcome, done.epochs, len(losses)) == ("complete", 3, 3)
    assert done.loss == min(losses) == wanted.provenance["val_loss"]
    tags = tags_of(setting.space, done.run_id)
    assert tags["mlflow.parentRunId"] == setting.parent[0]
    assert tags["mlflow.runName"] == f"{setting.parent[1]}-trial-1"
    assert (tags["klinepred.trial"], tags["klinepred.outcome"], tags["leak_certificate"]) == ("1", "complete", "passed")
    assert status(setting, done.run_id) == "FINISHED"
    assert not setting.checkpoint(1).exists()
    assert not (setting.space.mlruns / "checkpoints").exists()


def test_what_lies_in_the_test_part_changes_no_loss(setting: Setting) -> None:
    part_N = DATA.part_N == 3
    assert part_N.sum() > 100
    x_NF, y_N, raw_N = DATA.x_NF.copy(), DATA.y_N.copy(), DATA.raw_N.copy()
    x_NF[part_N], y_N[part_N], raw_N[part_N] = 1e6, -5.0, np.nan
    other = replace(DATA, x_NF=x_NF, y_N=y_N, raw_N=raw_N)
    both = []
    for number, data in ((2, DATA), (3, other)):
        losses: list[float] = []
        run_trial(Candidate(number, {}), RUN, data, setting, heard=noting(losses))
        both.append(losses)
    assert both[0] == both[1]


def test_a_pruned_trial_ends_at_once_and_its_run_says_so(setting: Setting) -> None:
    done = tried(setting, 4, lambda epoch, loss: epoch == 2)
    assert (done.outcome, done.epochs) == ("pruned", 2)
    assert status(setting, done.run_id) == "KILLED"
    assert tags_of(setting.space, done.run_id)["klinepred.outcome"] == "pruned"
    assert not setting.checkpoint(4).exists()


def test_a_failed_trial_says_why_and_the_study_goes_on(setting: Setting) -> None:
    done = tried(setting, 5, lambda epoch, loss: False, lr=1e30)
    assert done.outcome == "failed"
    assert "finite" in done.note
    assert status(setting, done.run_id) == "FAILED"
    assert tags_of(setting.space, done.run_id)["klinepred.note"] == done.note


def test_an_interrupted_trial_goes_on_to_the_same_losses_in_its_own_run(setting: Setting) -> None:
    whole: list[float] = []
    tried(setting, 6, noting(whole))
    steps: list[int] = []

    def stopping() -> None:
        steps.append(1)
        if len(steps) == 15:
            raise TrainingStopped("tuning", expected="to go on", got="a stop", do="resume")

    halves: list[float] = []

    heard = noting(halves)
    candidate = Candidate(7, {})
    with pytest.raises(TrainingStopped):
        run_trial(candidate, RUN, DATA, setting, heard=heard, stopping=stopping)
    assert 0 < len(halves) < 3
    assert setting.checkpoint(7).is_file()
    done = run_trial(candidate, RUN, DATA, setting, heard=heard)
    assert halves == whole
    assert (done.outcome, done.loss) == ("complete", min(whole))
    assert status(setting, done.run_id) == "FINISHED"


def test_each_trial_counts_as_a_look_at_the_test_part(setting: Setting) -> None:
    looks = count_looks(setting.space, setting.parent[0], test_after="2026-01-21")
    assert looks == 1 + 7  # whoever asks, and seven configurations: complete, pruned, failed
