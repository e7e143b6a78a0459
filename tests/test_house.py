"""In: the source tree. Out: each file is short, has a name that says something, and tells what it is for."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted(path for room in ("klinepred", "tests", "benchmarks") for path in (ROOT / room).rglob("*.py"))
TEXTS = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in FILES}
VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}


def test_no_file_is_longer_than_300_lines() -> None:
    assert len(TEXTS) > 600
    assert {path: long for path, text in TEXTS.items() if (long := len(text.splitlines())) > 300} == {}


def test_every_file_says_first_what_comes_in_and_what_goes_out() -> None:
    silent = [path for path, text in TEXTS.items() if not text.startswith('"""In: ') or ". Out: " not in text[:250]]
    assert silent == []


def test_no_name_stands_for_anything() -> None:
    assert [path for path in TEXTS if VAGUE & {part.removesuffix(".py") for part in path.parts}] == []
