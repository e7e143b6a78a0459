"""In: errors of MLflow's store. Out: what a person is told to do about each, without the password of its address."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException

from klinepred.errors import TrainingError
from klinepred.paths import Workspace
from klinepred.training.store_fault import store_fault
from klinepred.training.tracking import MlflowTracker
from tests.training.tiny import tiny_pipeline


def test_a_database_of_another_mlflow_is_to_be_upgraded_and_not_to_be_given_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    space = Workspace(tmp_path)
    first = MlflowTracker(space, tiny_pipeline())
    first.start(tiny_pipeline(), params={}, tags={}, resume=None)
    first.end("FINISHED")
    with closing(sqlite3.connect(space.mlruns / "mlflow.db")) as store, store:
        store.execute("update alembic_version set version_num = 'ffffffffffff'")
    uri = f"sqlite:///{space.mlruns / '.' / 'mlflow.db'}?x=1"  # another name, so that MLflow's store is not the old one
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(TrainingError) as refused:
        MlflowTracker(space, tiny_pipeline()).start(tiny_pipeline(), params={}, tags={}, resume=None)
    assert "out-of-date database schema" in refused.value.got
    assert "mlflow db upgrade" in refused.value.do
    assert "free space" not in refused.value.do


def test_other_faults_are_of_room_and_permission_and_no_password_is_shown() -> None:
    error = store_fault(
        MlflowException("disk full"), what="run", uri="postgresql://me:secret@host/db", then="train again"
    )
    assert error.do == "free space, mend permissions or the server, then train again"
    assert "secret" not in str(error)
