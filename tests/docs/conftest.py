"""In: nothing. Out: the workspace that all pages share, entered for the length of a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.space import Prepared, prepare


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, _no_cache_of_the_developer: None) -> Prepared:
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.chdir(folder)
        return prepare(folder)


@pytest.fixture
def prepared(made: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    """The workspace is the present folder, its pipelines are the shipped ones, nobody else's home is written to."""
    monkeypatch.chdir(made.root)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("klinepred.config.default_pipelines", lambda: made.root / "pipelines")
    return made
