"""In: nothing. Out: the workspace that all pages share, entered for the length of a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.space import Prepared, prepare
from tests.shallow import shallow_audit


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, _no_cache_of_the_developer: None) -> Prepared:
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch, shallow_audit():
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.chdir(folder)
        return prepare(folder)


@pytest.fixture
def prepared(made: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Prepared]:
    """The workspace is the present folder, its pipelines are the shipped ones, nobody else's home is written to."""
    monkeypatch.chdir(made.root)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("klinepred.config.default_pipelines", lambda: made.root / "pipelines")
    with shallow_audit():
        yield made
