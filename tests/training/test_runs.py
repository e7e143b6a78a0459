"""In: places for runs, good and bad. Out: which one is taken, and one message at once for those that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from klinepred.errors import TrainingError, UsageError
from klinepred.paths import Workspace
from klinepred.training.review import add_to_run, history_of, tags_of
from klinepred.training.runs import run_store
from klinepred.training.tracking import MlflowTracker
from tests.training.tiny import tiny_pipeline


@pytest.mark.parametrize("uri", ["file:./mlruns", "./mlruns", "file:///srv/mlruns", "C:\\mlruns"])
def test_a_folder_as_run_store_is_refused_before_anything_starts(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(UsageError, match="unset MLFLOW_TRACKING_URI") as refused:
        MlflowTracker(Workspace(tmp_path), tiny_pipeline())
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite+pysqlite://"])
def test_a_database_in_memory_as_run_store_is_refused_before_anything_starts(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(UsageError, match="one in memory") as refused:
        MlflowTracker(Workspace(tmp_path), tiny_pipeline())
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("uri", ["sqlite:////srv/x.db", "http://host:5000", "postgresql://u@h/db", "databricks"])
def test_an_explicit_run_store_wins(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Workspace(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert run_store(space) == uri
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    assert run_store(space) == space.tracking_uri


def test_an_old_folder_of_runs_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "mlruns" / "0").mkdir(parents=True)
    (tmp_path / "mlruns" / "0" / "meta.yaml").write_text("experiment_id: '0'\n")
    assert MlflowTracker(Workspace(tmp_path), tiny_pipeline()).uri == Workspace(tmp_path).tracking_uri


def test_a_store_that_cannot_be_opened_is_one_message(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    space.mlruns.mkdir()
    (space.mlruns / "mlflow.db").write_text("this is no database, it is a poem\n" * 40)
    with pytest.raises(TrainingError, match=r"mlflow\.db"):
        MlflowTracker(space, tiny_pipeline()).start(None, params={}, tags={}, resume=None)


def test_a_database_that_cannot_be_made_is_one_message_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Workspace(tmp_path)
    (space.mlruns / "mlflow.db").mkdir(parents=True)  # a folder in its place
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)  # MLflow would try again for 100 s
    with pytest.raises(TrainingError) as caught:
        MlflowTracker(space, tiny_pipeline()).start(None, params={}, tags={}, resume=None)
    assert "unable to open database file" in str(caught.value)
    assert "train again" in str(caught.value)
    assert max(waits, default=0.0) < 0.5


def test_a_damaged_store_elsewhere_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b.db").write_text("this is no database, it is a poem\n" * 40)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/a b.db")
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    with pytest.raises(TrainingError, match="not a database"):
        MlflowTracker(Workspace(tmp_path), tiny_pipeline()).start(None, params={}, tags={}, resume=None)
    with pytest.raises(TrainingError, match="not a database"):
        tags_of(Workspace(tmp_path), "0" * 32)
    with pytest.raises(TrainingError, match="not a database"):
        add_to_run(Workspace(tmp_path), "0" * 32, metrics={}, tags={}, files={})
    assert history_of(Workspace(tmp_path), "0" * 32, ["val_loss"]) == {}
    assert max(waits, default=0.0) < 0.5
