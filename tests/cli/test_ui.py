"""In: run stores. Out: the runs counted, the page served until a signal, or the reason why not."""

from __future__ import annotations

import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from klinepred.errors import TrainingError
from klinepred.paths import Workspace
from klinepred.training.runs import count_runs
from tests.conftest import Typed


def test_ui_counts_the_runs_that_are_there(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    assert count_runs(space) == 0
    space.mlruns.mkdir()
    with closing(sqlite3.connect(space.mlruns / "mlflow.db")) as store:
        assert count_runs(space) == 0
        store.execute("create table runs (run_uuid text, lifecycle_stage text)")
        store.executemany("insert into runs values (?, ?)", [("a", "active"), ("b", "deleted"), ("c", "active")])
        store.commit()
    assert count_runs(space) == 2


def test_ui_of_a_server_elsewhere_names_it(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5999")
    assert typed("ui", "-w", str(tmp_path))[:2] == (0, "http://127.0.0.1:5999\n")


def test_ui_on_a_port_in_use_says_so(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/other.db")
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        code, _, err = typed("ui", "--port", str(busy.getsockname()[1]))
    assert code == 2
    assert "--port 0" in err


def test_store_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    space.mlruns.mkdir()
    (space.mlruns / "mlflow.db").write_text("no database at all, but long enough to be looked at")
    with pytest.raises(TrainingError, match="run store"):
        count_runs(space)


def test_ui_serves_on_loopback_until_a_signal_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    words = [sys.executable, "-m", "klinepred", "ui", "-q", "--port", "0", "-w", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url, timeout=30) as page:  # noqa: S310  # the URL is our own server's
            assert b"<title>MLflow</title>" in page.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 128 + signal.SIGINT
    port = int(url.rpartition(":")[2])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
