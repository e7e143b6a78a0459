"""In: docs/features-custom.md. Out: what it shows works, and it names all there is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from klinepred.config import parse_pipeline
from klinepred.features.custom import features_for
from klinepred.features.plugins import COLUMNS
from klinepred.formula.expression import MOST_BRACKETS, MOST_CHARACTERS
from klinepred.formula.names import FAMILIES, MOST_LETTERS
from klinepred.formula.parse import MOST_BARS, MOST_NODES
from klinepred.formula.tree import FUNCTIONS, VALUES, WINDOWS
from tests.features.packages import install

PAGE = (Path(__file__).parents[1] / "docs" / "features-custom.md").read_text()
TOML, _, PYTHON = re.findall(r"```(?:toml|python)\n(.*?)```", PAGE, re.DOTALL)


def test_the_pipeline_and_the_package_it_shows_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, code=PYTHON, points="acme_book = tiltpack:features", name="acme")
    run = parse_pipeline({"name": "shown", **tomllib.loads(TOML)}, where="the page")
    names = features_for(run.features).names
    assert names[-5:] == (*run.features.custom, "acme__median_12")
    assert len(names) == 50 - 5 + 5


def test_it_names_all_there_is_and_the_limits() -> None:
    words = set(re.findall(r"[A-Za-z_0-9]+", PAGE))
    assert {*FUNCTIONS, *WINDOWS, *VALUES, *FAMILIES, *COLUMNS} <= words
    assert {
        str(number) for number in (MOST_LETTERS, MOST_BARS + 1, MOST_CHARACTERS, MOST_BRACKETS, MOST_NODES)
    } <= words
