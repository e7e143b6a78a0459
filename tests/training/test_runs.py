"""In: places for runs, good and bad. Out: which one is taken, and one message at once for those that cannot be."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from klinepred.errors import TrainingError, UsageError
from klinepred.paths import Workspace
from klinepred.training import runs
from klinepred.training.quiet import quiet
from klinepred.training.review import add_to_run, history_of, tags_of
from klinepred.training.runs import check_store, reach_server, run_store
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


def test_a_server_that_is_gone_is_one_message_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "getproxies", dict)
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"http://me:secret@127.0.0.1:{server.getsockname()[1]}"
        check_store(uri)  # somebody listens
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(TrainingError) as caught:
        MlflowTracker(Workspace(tmp_path), tiny_pipeline())
    assert caught.value.summary == f"MLflow server {uri.replace('me:secret', '***')}"
    assert "refused" in caught.value.got
    assert "MLFLOW_TRACKING_URI" in caught.value.do
    assert "secret" not in str(caught.value)


def test_a_server_behind_a_proxy_and_other_stores_are_not_knocked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "getproxies", lambda: {"http": "http://proxy:3128"})
    monkeypatch.setattr(runs, "proxy_bypass", lambda _host: False)
    monkeypatch.setattr("socket.create_connection", lambda *_, **__: pytest.fail("knocked"))
    for uri in ("http://nowhere.invalid:5000", "postgresql://u@h/db", "databricks"):
        reach_server(uri)


def test_mlflow_gives_up_on_a_server_sooner_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_TIMEOUT", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    with quiet():
        pass
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "2"
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "60"
