"""In: the order of the tests. Out: the longest begin, the pages of docs stay together, all else stays as it is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.schedule import LONGEST, scope_of, sort_tests

ROOT = Path(__file__).parents[1]


def test_what_is_said_to_be_long_is_there() -> None:
    assert [name for name in LONGEST if not (ROOT / name).exists()] == []
    assert len(set(LONGEST)) == len(LONGEST)


def test_long_files_come_first_and_the_order_of_the_rest_is_kept() -> None:
    found = ["tests/b.py::b", "tests/b.py::a", f"{LONGEST[2]}::a", "tests/a.py::c", "tests/docs/test_x.py::a[x::y]"]
    items: list[Any] = [SimpleNamespace(nodeid=name) for name in found]
    sort_tests(items)
    assert LONGEST[1] == "tests/docs"
    assert [item.nodeid for item in items] == [found[4], found[2], *found[:2], found[3]]


def test_files_are_scopes_of_their_own_but_for_the_pages_of_docs() -> None:
    assert scope_of("tests/bars/test_x.py::test_a[b::c]") == "tests/bars/test_x.py"
    assert {scope_of(f"tests/docs/test_{name}.py::test_a") for name in "xy"} == {"tests/docs"}
