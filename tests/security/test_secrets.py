"""In: addresses of run stores with passwords in them. Out: the passwords told to nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from klinepred.cli import main
from klinepred.config import load_pipeline
from klinepred.errors import KlinepredError
from klinepred.paths import Workspace
from klinepred.training.quiet import quiet
from klinepred.training.tracking import MlflowTracker
from tests.conftest import Typed
from tests.security.secret import leaks, secrets, told

ADDRESSES = (
    "http://me:hunter2@127.0.0.1:1",
    "http://127.0.0.1:1/?password=hunter2",
    "postgresql://me:hunter2@127.0.0.1:1/x",
    "file://me:hunter2@host/mlruns",
    "gopher://me:hunter2@host",
)


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in secrets().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


@pytest.mark.parametrize("uri", ADDRESSES)
def test_a_run_that_cannot_begin_shows_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, uri: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    run = load_pipeline("demo")
    with pytest.raises(KlinepredError) as caught:
        MlflowTracker(Workspace(tmp_path), run).start(run, params={}, tags={}, resume=None)
    assert told(str(caught.value) + caplog.text) == []
    assert "***" in str(caught.value)
    assert leaks(tmp_path) == {}


@pytest.mark.parametrize("uri", ADDRESSES)
@pytest.mark.parametrize("command", ["doctor", "serve"])
def test_commands_show_no_password(
    tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch, uri: str, command: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    _, out, err = typed(command, "-w", str(tmp_path), *(("--port", "0") if command == "serve" else ()))
    assert told(out + err) == []
    assert "Traceback" not in err
    assert "***" in out + err or command == "serve"


def test_mlflow_does_not_print_the_address_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a run on a server it would, with the password, on stdout."""
    monkeypatch.delenv("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", raising=False)
    with quiet():
        from mlflow.environment_variables import MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT
    assert MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT.get()  # type: ignore[no-untyped-call]


def test_ui_shows_the_address_of_a_server_without_its_password(
    tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:hunter2@example.org")
    assert typed("ui", "-w", str(tmp_path))[:2] == (0, "https://***@example.org\n")


def test_the_words_that_start_the_ui_hold_no_address_of_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user of a machine can read the words that a process was started with."""
    seen: list[tuple[list[str], dict[str, str]]] = []

    def no_process(words: list[str], *, env: dict[str, str], **_: object) -> None:
        seen.append((words, env))
        raise OSError(0, "not started")

    monkeypatch.setattr("klinepred.cli.ui.subprocess.Popen", no_process)
    uri = f"sqlite:///{tmp_path}/hunter2.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert main(["ui", "--port", "0", "-w", str(tmp_path)]) == 1
    assert "not started" in capfd.readouterr().err
    ((words, env),) = seen
    assert told(" ".join(words)) == []
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert env["MLFLOW_BACKEND_STORE_URI"] == uri
