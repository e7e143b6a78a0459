"""In: the source tree. Out: each file is short and begins by saying what comes in and what goes out."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for room in ("klinepred", "tests", "benchmarks") for path in (ROOT / room).rglob("*.py"))
VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_is_one_noun_under_300_lines_and_says_what_it_is_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    said = ast.get_docstring(ast.parse(text)) or ""
    assert said.startswith("In: ")
    assert "Out: " in said.splitlines()[0] + said
    assert not VAGUE & {part.removesuffix(".py").removeprefix("test_") for part in path.relative_to(ROOT).parts}
