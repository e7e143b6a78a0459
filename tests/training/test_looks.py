"""In: runs of an experiment. Out: how many of them are looks at one test part."""

from __future__ import annotations

from pathlib import Path

import pytest

from klinepred.evaluation.significance import level_of
from klinepred.paths import Workspace
from klinepred.training.review import count_looks
from klinepred.training.runs import TEST_AFTER, TRIAL

DAY = "2026-05-04"


def test_finished_runs_with_the_same_test_part_are_looks(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    space = Workspace(tmp_path)
    space.mlruns.mkdir(parents=True)
    client = MlflowClient(tracking_uri=space.tracking_uri)
    here, there = (client.create_experiment(name) for name in ("klinepred/demo", "klinepred/other"))

    def run(experiment: str, *, day: str = DAY, status: str | None = "FINISHED", **tags: str) -> str:
        made: str = client.create_run(experiment, tags={TEST_AFTER: day, **tags}).info.run_id
        if status:
            client.set_terminated(made, status)
        return made

    first = run(here)
    assert count_looks(space, first, test_after=DAY) == 1
    run(here)
    assert count_looks(space, first, test_after=DAY) == 2
    run(here, status="FAILED")
    run(here, status=None)
    run(here, day="2026-05-05")
    run(there)
    run(here, **{"mlflow.parentRunId": first})
    assert count_looks(space, first, test_after=DAY) == 2
    unfinished = run(here, status="KILLED")
    assert count_looks(space, unfinished, test_after=DAY) == 3, "a run counts itself, whatever became of it"


def test_every_trial_of_a_search_is_a_look_and_the_search_itself_is_none(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    space = Workspace(tmp_path)
    space.mlruns.mkdir(parents=True)
    client = MlflowClient(tracking_uri=space.tracking_uri)
    here = client.create_experiment("klinepred/demo")
    model = client.create_run(here, tags={TEST_AFTER: DAY}).info.run_id
    client.set_terminated(model, "FINISHED")
    search = client.create_run(here, tags={"klinepred.kind": "tune"}).info.run_id
    client.set_terminated(search, "FINISHED")
    for number, status in enumerate(["FINISHED", "FINISHED", "FINISHED", "KILLED", "FAILED"], start=1):
        tags = {TEST_AFTER: DAY, TRIAL: str(number), "mlflow.parentRunId": search}
        client.set_terminated(client.create_run(here, tags=tags).info.run_id, status)
    begun_again = {TEST_AFTER: DAY, TRIAL: "4", "mlflow.parentRunId": search}
    client.set_terminated(client.create_run(here, tags=begun_again).info.run_id, "FINISHED")
    fold = client.create_run(here, tags={TEST_AFTER: DAY, "mlflow.parentRunId": model}).info.run_id
    client.set_terminated(fold, "FINISHED")
    looks = count_looks(space, model, test_after=DAY)
    assert looks == 6  # the model, and five trials
    # 1 - (1 - 0.025)^(1/6): log 0.975 = -0.0253178, a sixth of it -0.00421963, and exp of that 0.99578926
    assert level_of(looks) == pytest.approx(0.00421074, abs=1e-8)


def test_a_model_without_runs_has_one_look(tmp_path: Path) -> None:
    assert count_looks(Workspace(tmp_path), "", test_after=DAY) == 1
    assert count_looks(Workspace(tmp_path), "0" * 32, test_after=DAY) == 1
    assert not (tmp_path / "mlruns").exists()
