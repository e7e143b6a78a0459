"""In: command lines that undo, delete and tidy. Out: the store changed only where that was meant, and said."""

from __future__ import annotations

import io
import json
from pathlib import Path

import polars as pl
import pytest

from tests.bars.made import walk
from tests.conftest import Typed

NOW = ("--now", "2026-11-30")


@pytest.fixture
def space(tmp_path: Path, typed: Typed) -> Path:
    walk(["A", "B"]).write_parquet(tmp_path / "bars.parquet")
    assert typed("ingest", str(tmp_path / "bars.parquet"), "-w", str(tmp_path), *NOW)[0] == 0
    return tmp_path


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _bars(space: Path, typed: Typed) -> list[tuple[str, int]]:
    return [
        (row["symbol"], row["bars"])
        for row in json.loads(typed("bars", "list", "-w", str(space), "--format", "json")[1])
    ]


def test_delete_needs_symbols_and_a_word_and_restore_brings_the_bars_back(space: Path, typed: Typed) -> None:
    at = ("-w", str(space))
    code, _, err = typed("bars", "delete", *at, "--yes")
    assert (code, "--symbols" in err) == (2, True)
    code, _, err = typed("bars", "delete", "--symbols", "B", *at)
    assert (code, "delete 234 bars of B" in err, "--yes" in err) == (2, True, True)
    assert _bars(space, typed) == [("A", 234), ("B", 234)]
    code, out, err = typed("bars", "delete", "--symbols", "B", "--start", "2026-06-02", "--yes", "--format", "csv", *at)
    assert (code, out.splitlines()) == (0, ["symbol,before,after", "B,234,78"])
    assert "156 bars deleted; store version 1; back with klinepred bars restore --as-of 0" in err
    code, out, err = typed("bars", "restore", "--as-of", "0", "--format", "csv", *at)
    assert (code, out.splitlines()) == (0, ["symbol,before,after,changed", "B,78,234,0"])
    assert "restored: 312 bars of 2 symbols before, now 468 bars of 2 symbols; 0 bars with other values" in err
    assert "store version 2" in err
    assert _bars(space, typed) == [("A", 234), ("B", 234)]
    rows = json.loads(typed("bars", "history", "--format", "json", *at)[1])
    assert [(row["version"], row["operation"], row["rows"]) for row in rows] == [
        (0, "ingest", 468),
        (1, "delete", 312),
        (2, "restore", 468),
    ]


@pytest.mark.parametrize(("answer", "left"), [("y\n", 1), ("n\n", 2), ("\n", 2)])
def test_delete_asks_on_a_terminal(
    space: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch, answer: str, left: int
) -> None:
    monkeypatch.setattr("sys.stdin", _Terminal(answer))
    code, _, err = typed("bars", "delete", "--symbols", "B", "-w", str(space))
    assert "delete 234 bars of B. Go on?" in err
    assert (code == 0) == (left == 1)
    assert len(_bars(space, typed)) == left


def test_a_rehearsal_changes_nothing(space: Path, typed: Typed) -> None:
    at = ("-w", str(space))
    assert "would delete 234 bars" in typed("bars", "delete", "--symbols", "B", "--dry-run", *at)[2]
    typed("bars", "delete", "--symbols", "B", "--yes", *at)
    err = typed("bars", "restore", "--as-of", "0", "--dry-run", *at)[2]
    assert "would restore: 234 bars of 1 symbols would become 468 bars of 2 symbols" in err
    assert _bars(space, typed) == [("A", 234)]


def test_compact_rewrites_what_lies_in_several_files(space: Path, typed: Typed) -> None:
    at = ("-w", str(space))
    walk(["C"]).write_parquet(space / "more.parquet")
    typed("ingest", str(space / "more.parquet"), *at, *NOW)
    assert typed("bars", "compact", "--format", "csv", *at)[1].splitlines() == ["month,before,after,bars,version"]
    code, out, err = typed("bars", "compact", "--all", "--format", "csv", *at)
    assert (code, out.splitlines()[1:]) == (0, ["2026-06,2,1,702,2"])
    assert "1 month rewritten; store version 2" in err


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (("restore", "--as-of", "7"), 1, "0 (2026"),
        (("restore", "--as-of", "2020-01-01"), 1, "before the first"),
        (("show", "--as-of", "2020-01-01"), 1, "before the first"),
        (("list", "--as-of", "9"), 1, "after the last"),
        (("delete", "--symbols", "X", "--yes"), 1, "no data for X"),
        (("delete", "--symbols", "A", "--start", "2026-06-03", "--end", "2026-06-01"), 2, "a start before the end"),
        (("export", "-o", "x.txt"), 2, ".parquet"),
        (("export", "-o", "no/such/../x.csv", "--symbols", "X"), 1, "no data for X"),
        (("vacuum", "--keep-days", "-1"), 2, "keep-days"),
    ],
)
def test_what_cannot_be_done_is_one_message(
    space: Path, typed: Typed, line: tuple[str, ...], code: int, words: str
) -> None:
    got, out, err = typed("bars", *line, "-w", str(space))
    assert (got, out) == (code, "")
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize("command", ["history", "compact", "vacuum"])
def test_an_empty_workspace_has_nothing_to_tidy(tmp_path: Path, typed: Typed, command: str) -> None:
    code, _, err = typed("bars", command, "-w", str(tmp_path))
    assert code == 0
    assert "nothing stored yet" in err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "line", [("delete", "--symbols", "A", "--yes"), ("restore", "--as-of", "0"), ("export", "-o", "o.csv")]
)
def test_an_empty_workspace_has_nothing_to_undo(tmp_path: Path, typed: Typed, line: tuple[str, ...]) -> None:
    code, _, err = typed("bars", *line, "-w", str(tmp_path))
    assert (code, "klinepred ingest" in err) == (1, True)


def test_rows_are_the_same_in_every_form(space: Path, typed: Typed) -> None:
    at = ("-w", str(space))
    typed("bars", "history", "--format", "parquet", "-o", str(space / "h.parquet"), *at)
    assert pl.read_parquet(space / "h.parquet")["version"].to_list() == [0]
    assert "store version 0" in typed("bars", "show", *at)[2]
    assert "store version 0" in typed("bars", "list", *at)[2]
    assert "store version 0" in typed("bars", "check", *at, *NOW)[2]
