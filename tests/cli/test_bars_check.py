"""In: `klinepred bars check` and `bars list` as typed. Out: tables for people, rows for programs, a page."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from klinepred.cli import main
from tests.bars.made import flat, rows, utc, walk
from tests.conftest import Typed

NOW = ("--now", "2026-11-30")


@pytest.fixture
def space(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    frame = walk(["AAPL", "MSFT"], days=12)
    hole = (pl.col("symbol") == "MSFT") & pl.col("ts").is_between(utc("2026-06-02T19:50"), utc("2026-06-03T13:30"))
    ended = (pl.col("symbol") == "MSFT") & (pl.col("ts") > utc("2026-06-05"))
    split = (pl.col("symbol") == "AAPL") & (pl.col("ts") > utc("2026-06-04"))
    frame = frame.filter(~(hole | ended)).with_columns(
        pl.when(split).then(pl.col(name) / 4.0).otherwise(name).alias(name) for name in ("open", "high", "low", "close")
    )
    bad = rows(flat("AAPL", "2026-06-01T20:00:00"))
    pl.concat([frame, bad]).write_parquet(tmp_path / "bars.parquet")
    assert main(["ingest", str(tmp_path / "bars.parquet"), "-w", str(tmp_path), "-q", *NOW]) == 0
    capsys.readouterr()
    return tmp_path


def _rows(typed: Typed, space: Path, *words: str) -> list[dict[str, object]]:
    code, out, _ = typed("bars", "check", "-w", str(space), "-q", "--format", "json", *NOW, *words)
    assert code == 0
    answer: list[dict[str, object]] = json.loads(out)
    return answer


def test_a_table_shows_what_was_found_and_leaves_out_what_was_not(space: Path, typed: Typed) -> None:
    code, out, err = typed("bars", "check", "-w", str(space), *NOW)
    assert code == 0
    heads = out.splitlines()[0].split()
    assert {"symbol", "expected", "missing", "gaps", "jumps", "quarantined", "ended", "late"} <= set(heads)
    assert not {"duplicates", "impossible", "stale", "spikes", "renamed_to"} & set(heads)
    assert "1,089 of 1,092 expected bars are there; 3 missing" in err  # ten sessions and four, of 78 bars
    assert "warning: no bar any more, while others of the calendar go on: MSFT (2026-06-04)" in err


def test_json_has_every_count_of_a_symbol(space: Path, typed: Typed) -> None:
    first, second = _rows(typed, space)
    assert (first["symbol"], first["jumps"], first["quarantined"], first["ended"]) == ("AAPL", 1, 1, None)
    assert (second["missing"], second["gaps"], second["longest_gap"], second["ended"]) == (3, 1, 3, "2026-06-04")
    assert set(first) >= {"duplicates", "impossible", "stale_run", "zero_run", "spikes", "first_ts", "renamed_to"}


def test_listings_name_the_stamps(space: Path, typed: Typed) -> None:
    assert _rows(typed, space, "--gaps") == [
        {"symbol": "MSFT", "from_ts": "2026-06-02T19:50:00Z", "to_ts": "2026-06-03T13:30:00Z", "bars": 3, "sessions": 2}
    ]
    (jump,) = _rows(typed, space, "--jumps")
    assert (jump["symbol"], jump["ts"], jump["factor"]) == ("AAPL", "2026-06-04T13:30:00Z", "1/4")
    (aside,) = _rows(typed, space, "--quarantine")
    assert (aside["reason"], aside["rows"]) == ("outside the trading sessions", 1)
    assert len(_rows(typed, space, "--sessions")) == 14
    code, out, _ = typed("bars", "check", "-w", str(space), *NOW, "--sessions")
    assert code == 0
    assert len(out.splitlines()) == 3  # a table has the odd ones only


def test_two_listings_at_once_are_refused(space: Path, typed: Typed) -> None:
    code, _, err = typed("bars", "check", "-w", str(space), "--gaps", "--jumps")
    assert code == 2
    assert "at most one listing" in err


@pytest.mark.parametrize("words", [("--html", "page.html"), ("-o", "page.html"), ("-o", "page.htm")])
def test_the_picture_is_written_where_asked(
    space: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch, words: tuple[str, str]
) -> None:
    monkeypatch.chdir(space)
    code, out, err = typed("bars", "check", "-w", ".", *NOW, *words)
    assert code == 0
    text = (space / words[1]).read_text()
    assert text.startswith("<!doctype html>")
    assert "MSFT" in text
    assert f"wrote {words[1]}" in err
    assert bool(out) == (words[0] == "--html")


def test_rows_go_into_a_file_and_a_page_beside_them(space: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(space)
    words = ("--format", "csv", "-o", "rows.csv", "--html", "page.html", "--gaps")
    assert typed("bars", "check", "-w", ".", *NOW, *words)[0] == 0
    assert (space / "rows.csv").read_text().splitlines()[0] == "symbol,from_ts,to_ts,bars,sessions"
    assert (space / "page.html").is_file()


def test_a_page_that_cannot_be_written_is_one_message(space: Path, typed: Typed) -> None:
    code, _, err = typed("bars", "check", "-w", str(space), *NOW, "--html", str(space / "bars.parquet" / "x.html"))
    assert code == 2
    assert "a file that can be written" in err
    assert "Traceback" not in err


def test_list_says_which_symbols_ended(space: Path, typed: Typed) -> None:
    code, out, _ = typed("bars", "list", "-w", str(space), "--format", "json", "-q")
    assert code == 0
    assert [(row["symbol"], row["calendar"], row["ended"]) for row in json.loads(out)] == [
        ("AAPL", "XNYS", None),
        ("MSFT", "XNYS", "2026-06-04"),
    ]


def test_list_of_an_empty_store_is_empty(tmp_path: Path, typed: Typed) -> None:
    code, out, err = typed("bars", "list", "-w", str(tmp_path), "--format", "json")
    assert (code, json.loads(out)) == (0, [])
    assert "nothing stored yet" in err
