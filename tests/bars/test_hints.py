"""In: bars under a wrong calendar, names that look alike, other names of one calendar. Out: it is said, or is one."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars import tables
from klinepred.bars.ingest import ingest
from klinepred.bars.report import IngestReport
from klinepred.bars.store import list_symbols, scan_bars, stored_clocks
from klinepred.bars.twins import find_twins
from klinepred.calendar import Clock
from klinepred.paths import Workspace
from klinepred.schema import BAR_SCHEMA
from tests.bars.made import NOW, ROUND, from_files, rows, utc, walk


def take(space: Workspace, frame: pl.DataFrame, *, now: datetime = NOW, **more: object) -> IngestReport:
    space.root.mkdir(parents=True, exist_ok=True)
    path = space.root / "bars.parquet"
    frame.write_parquet(path)
    return ingest(from_files(path, **more), space, now=now)


@pytest.mark.parametrize(
    ("calendar", "words"),
    [
        ("XNYS", "between 13:30Z and 21:00Z, the hours of US stocks"),
        ("XLON", "between 07:00Z and 16:30Z, the hours of London"),
        ("XTKS", "between 00:00Z and 06:30Z, the hours of Tokyo"),
        ("XSHG", "between 01:30Z and 08:00Z, the hours of Hong Kong or mainland China"),
    ],
)
def test_stocks_taken_in_around_the_clock_are_pointed_out(tmp_path: Path, calendar: str, words: str) -> None:
    report = take(Workspace(tmp_path), walk(["A", "B"], clock=Clock(calendar)), calendar="24/7")
    (line,) = [line for line in report.remarks if "24/7" in line]
    assert line.startswith("A, B: every bar lies from Monday to Friday")
    assert words in line
    assert f"--calendar {'XHKG or XSHG' if calendar == 'XSHG' else calendar}" in line


def test_coins_are_not_pointed_out_nor_a_single_day(tmp_path: Path) -> None:
    coins = walk(["BTC"], clock=ROUND)
    assert not take(Workspace(tmp_path / "a"), coins, calendar="24/7").remarks
    day = walk(["A"], days=1)
    assert not take(Workspace(tmp_path / "b"), day, calendar="24/7").remarks
    weekend = walk(["A"], start="2026-06-05", days=4, clock=ROUND).filter(pl.col("ts").dt.hour().is_between(14, 19))
    assert not take(Workspace(tmp_path / "c"), weekend, calendar="24/7").remarks


def test_coins_taken_in_as_stocks_are_pointed_out(tmp_path: Path) -> None:
    report = take(Workspace(tmp_path), walk(["BTC"], clock=ROUND))
    assert "rows lie outside the sessions: check --calendar" in report.symbols[0].message


def test_names_of_one_calendar_are_one(tmp_path: Path) -> None:
    space, frame = Workspace(tmp_path), walk(["A"])
    take(space, frame.head(100), calendar="NYSE")
    report = take(space, frame, calendar="XNYS")
    assert (report.symbols[0].new, report.symbols[0].unchanged) == (134, 100)
    assert take(space, frame, calendar="NASDAQ").symbols[0].status == "unchanged"
    assert list_symbols(space)["calendar"].to_list() == ["XNYS"]


def test_a_store_that_has_an_alias_goes_on_working(tmp_path: Path) -> None:
    space, frame = Workspace(tmp_path), walk(["A"])
    take(space, frame.head(100))
    old = tables.scan_table(space.data, tables.SYMBOLS).with_columns(calendar=pl.lit("NYSE")).collect()
    tables.overwrite(space.data, tables.SYMBOLS, old, note={})
    assert stored_clocks(space) == {"A": Clock("XNYS")}
    assert list_symbols(space)["calendar"].to_list() == ["XNYS"]
    assert scan_bars(space).collect()["calendar"].unique().to_list() == ["XNYS"]
    assert take(space, frame).symbols[0].new == 134


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("aapl", "AAPL"),
        ("ААРL", "AAPL"),
        ("BRK B", "BRKB"),
        ("AA\u200bPL", "AAPL"),
        ("ＡＡＰＬ", "AAPL"),
        ("ΒΤC", "BTC"),
    ],
)
def test_names_that_look_alike_are_twins(new: str, old: str) -> None:
    assert find_twins([new], [old, "MSFT"]) == [(new, old)]
    assert find_twins([old], [new]) == [(old, new)]


def test_names_that_differ_are_no_twins() -> None:
    assert find_twins(["BRK.B", "BRK-B", "BRK-A", "GOOG", "GOOGL", "BTC-USD", "BTC/USDT"], ["AAPL", "BRK"]) == []
    assert find_twins([], ["AAPL", "aapl"]) == []
    assert find_twins(["aapl", "AAPL"], ["aapl", "AAPL"]) == [("aapl", "AAPL")]


def test_a_twin_is_said_once_and_kept_apart(tmp_path: Path) -> None:
    space, frame = Workspace(tmp_path), walk(["AAPL"])
    take(space, frame)
    small = frame.with_columns(symbol=pl.lit("aapl"))
    report = take(space, small)
    (line,) = report.remarks
    assert line.startswith("'aapl' is new beside 'AAPL': two symbols that look alike, kept apart")
    assert list_symbols(space)["symbol"].to_list() == ["AAPL", "aapl"]
    assert scan_bars(space, symbols=["AAPL"]).select(BAR_SCHEMA.keys()).collect().equals(frame)
    assert not take(space, small).remarks


def test_empty_and_unfinished_rows_are_listed_with_their_first_stamps(tmp_path: Path) -> None:
    frame = walk(["A"])
    gone = pl.int_range(pl.len()) < 50
    frame = frame.with_columns(
        pl.when(gone).then(None).otherwise(pl.col(name)).alias(name) for name in ("open", "high", "low", "close")
    )
    report = take(Workspace(tmp_path), frame, now=utc("2026-06-03T19:00:00"))
    row = report.to_dict()["symbols"][0]
    assert (row["empty"], len(row["empty_ts"]), row["empty_ts"][:2]) == (
        50,
        20,
        ["2026-06-01T13:30:00Z", "2026-06-01T13:35:00Z"],
    )
    assert (row["held_back"], row["held_back_ts"][0], len(row["held_back_ts"])) == (12, "2026-06-03T19:00:00Z", 12)


def test_an_unfinished_last_bar_is_marked_in_the_remarks(tmp_path: Path) -> None:
    minutes = rows(
        *(("A", f"2026-06-01T13:{minute}:00", 10.0, 10.0, 10.0, 10.0, 1.0) for minute in range(30, 43)),
    )
    report = take(Workspace(tmp_path), minutes)
    assert any("13:40" in line for line in report.to_dict()["remarks"])


@pytest.mark.parametrize("days", [1, 3])
def test_ends_taken_for_opens_and_opens_for_ends_are_doubted_even_in_one_session(tmp_path: Path, days: int) -> None:
    opens = walk(["A"], days=days)
    ends = opens.with_columns(pl.col("ts") + pl.duration(minutes=5))
    as_opens = take(Workspace(tmp_path / "a"), ends, stamp="open")
    assert any("look like bar ENDS" in line for line in as_opens.remarks)
    as_ends = take(Workspace(tmp_path / "b"), opens, stamp="close")
    assert any("look like bar OPENS" in line for line in as_ends.remarks)
    for frame, stamp in ((opens, "open"), (ends, "close")):
        right = take(Workspace(tmp_path / stamp), frame, stamp=stamp)
        assert not any("look like" in line for line in right.remarks)


def test_a_closing_print_after_a_late_start_is_not_taken_for_ends(tmp_path: Path) -> None:
    afternoon = walk(["A"], days=1).filter(pl.col("ts") >= utc("2026-06-01T17:00:00"))
    closing = afternoon.tail(1).with_columns(pl.col("ts") + pl.duration(minutes=5))
    report = take(Workspace(tmp_path), pl.concat([afternoon, closing]), stamp="open")
    assert not any("look like" in line for line in report.remarks)
