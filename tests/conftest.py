"""In: nothing. Out: what tests of several rooms share: a clean environment, an order, a command line to type into."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest

from klinepred.cli import main
from tests.run_store import make_tables_once
from tests.schedule import ByScope, sort_tests

# No test is about time, and a busy machine is no failure.
hypothesis.settings.register_profile("klinepred", deadline=None)
hypothesis.settings.load_profile("klinepred")

Typed = Callable[..., tuple[int, str, str]]


def pytest_configure(config: pytest.Config) -> None:
    """Processes at once share the cores: threads of torch that wait for each other take longer than one.

    A script that runs the tests in its background has them ignore SIGINT, and so all that they start.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if processes > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // processes)))
    config.option.loadscopereorder = False  # xdist would begin with the files of most tests
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All processes sort alike."""
    sort_tests(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByScope | None:
    """`--dist loadfile` keeps the pages of docs together, too."""
    return ByScope(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are numbered, not spelled: gzip writes down the second, and all processes must agree on names."""
    return argname if isinstance(val, bytes | bytearray) else None


@pytest.fixture(autouse=True)
def _no_settings_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True, scope="module")
def _no_run_store_of_an_earlier_module() -> None:
    """Fixtures of a module are made before those of its tests."""
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    make_tables_once()


@pytest.fixture(autouse=True)
def _log_as_at_the_start() -> None:
    """A command line that an earlier test typed has sent the log elsewhere."""
    log = logging.getLogger("klinepred")
    log.handlers.clear()
    log.propagate = True
    log.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True, scope="session")
def _no_cache_of_the_developer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Calendars are worked out once for all tests, and by the code that is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KLINEPRED_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Typed:
    """Run a command line in this process; gives its exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main([*words])
        out, err = capsys.readouterr()
        return code, out, err

    return run
