"""In: servers that are gone, or slow, and a stop signal. Out: the wait ends soon, or goes on, as it should."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from klinepred.paths import Workspace
from klinepred.training import patience
from klinepred.training.patience import stoppable
from klinepred.training.signals import StopRequest, TrainingStopped, TrainingTerminated
from klinepred.training.tracker import Metric
from klinepred.training.tracking import MlflowTracker
from tests.training.tiny import tiny_pipeline


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LOOK_S", 0.05)
    monkeypatch.setattr(patience, "GONE_S", 0.2)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server


def uri_of(server: socket.socket) -> str:
    return f"http://127.0.0.1:{server.getsockname()[1]}"


def ask(tracker: MlflowTracker) -> None:
    tracker.set_tags({"verdict": "EDGE"})


def settle(tracker: MlflowTracker) -> None:
    tracker.log_metrics([Metric("step/loss", 1.0, 1, 0)])
    tracker.settle()


@pytest.mark.parametrize("call", [ask, settle])
def test_a_signal_ends_what_waits_for_a_server_that_is_gone_and_the_run_is_left_to_the_next(
    call: Callable[[MlflowTracker], None], listener: socket.socket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from mlflow import MlflowClient

    tracker = MlflowTracker(Workspace(tmp_path), tiny_pipeline())
    tracker.start(None, params={}, tags={}, resume=None)
    place = tracker.checkpoint
    assert place is not None
    assert tracker._watch is not None
    tracker._watch.stop()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()
    tracker.uri = uri_of(listener)
    tracker._client = MlflowClient(tracking_uri=tracker.uri)
    listener.close()

    def train() -> None:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        try:
            call(tracker)
        finally:
            tracker.end("KILLED")

    with pytest.raises(TrainingTerminated, match="training stopped by SIGTERM") as caught, StopRequest():
        train()
    assert caught.value.exit_code == 143
    assert caught.value.got == f"a stop while the run store {tracker.uri} did not answer"
    assert caught.value.do == f"continue with --resume {place.stem}"
    assert f"run {tracker.run_name} stays RUNNING in {tracker.uri}" in caplog.text


def test_a_server_that_listens_is_waited_for_and_not_for_ever(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(seconds: float) -> None:
        signal.raise_signal(signal.SIGINT)
        with stoppable(uri_of(listener), checkpoint=None):
            time.sleep(seconds)

    def answered() -> None:
        wait(0.8)
        raise ZeroDivisionError  # the wait is over, and no signal ends this test

    with pytest.raises(ZeroDivisionError), StopRequest():
        answered()
    monkeypatch.setattr(patience, "SLOW_S", 0.3)
    with pytest.raises(TrainingStopped, match="SIGINT") as caught, StopRequest():
        wait(60.0)
    assert caught.value.do == "start again; no checkpoint had been written yet"


def test_a_store_in_a_file_is_left_to_end_what_it_does() -> None:
    def write() -> None:
        with stoppable("sqlite:///mlflow.db", checkpoint=None):
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.5)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), StopRequest():
        write()
    assert StopRequest.inside == []
