"""In: nothing. Out: what tests of several rooms share: a clean environment, and a command line to type into."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis
import pytest

from klinepred.cli import main

# No test is about time, and a busy machine is no failure.
hypothesis.settings.register_profile("klinepred", deadline=None)
hypothesis.settings.load_profile("klinepred")

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _no_settings_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Typed:
    """Run a command line in this process; gives its exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main([*words])
        out, err = capsys.readouterr()
        return code, out, err

    return run
