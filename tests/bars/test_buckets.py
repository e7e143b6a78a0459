"""In: rows of 1, 2, 3, 4 minutes and of seconds. Out: 5-minute bars worked out by hand, none knowing its future."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars.clean import OUTSIDE
from klinepred.bars.ingest import ingest
from klinepred.bars.sources.spacing import Spaced, to_five_minutes
from klinepred.bars.store import scan_bars
from klinepred.calendar import Clock
from klinepred.paths import Workspace
from klinepred.schema import BAR
from tests.bars.made import ROUND, XNYS, flat, from_files, rows, utc

OPEN = datetime(2026, 6, 1, 13, 30)  # a Monday, the open of New York
XSHG = Clock("XSHG")


def _rows(seconds: int, count: int, *, start: datetime = OPEN, skip: tuple[int, ...] = ()) -> pl.DataFrame:
    """Flat rows: price 10, 11, …, volume 1, 2, 4, … so that a sum tells which rows are in it."""
    stamps = [(spot, start + timedelta(seconds=seconds * spot)) for spot in range(count) if spot not in skip]
    return rows(*(flat("A", stamp.isoformat(), 10.0 + spot, 2.0**spot) for spot, stamp in stamps))


def _make(frame: pl.DataFrame, clock: Clock = XNYS, *, ends: bool = False) -> Spaced:
    return to_five_minutes(frame, clock=clock, ends=ends)


def _sums(*spots: int) -> float:
    return float(sum(2**spot for spot in spots))


def test_a_two_minute_row_counts_in_the_bar_it_ends_in() -> None:
    # rows end at 13:32, :34, :36, :38, :40, :42: the one from 13:34 to 13:36 belongs to the bar of 13:35
    got = _make(_rows(120, 6))
    assert got.frame.select("ts", "open", "high", "low", "close", "volume").rows() == [
        (utc("2026-06-01T13:30"), 10.0, 11.0, 10.0, 11.0, _sums(0, 1)),
        (utc("2026-06-01T13:35"), 12.0, 14.0, 12.0, 14.0, _sums(2, 3, 4)),
        (utc("2026-06-01T13:40"), 15.0, 15.0, 15.0, 15.0, _sums(5)),
    ]
    assert any("1 2-minute rows lie across two bars" in line and "1 min early" in line for line in got.remarks)
    assert any("13:40Z is made of 1 of 2 rows" in line for line in got.remarks)


def test_three_and_four_minute_rows_and_90_seconds_likewise() -> None:
    three = _make(_rows(180, 5))  # ends 13:33, :36, :39, :42, :45
    assert three.frame["volume"].to_list() == [_sums(0), _sums(1, 2), _sums(3, 4)]
    assert any("2 3-minute rows lie across" in line and "2 min early" in line for line in three.remarks)
    four = _make(_rows(240, 5))  # ends 13:34, :38, :42, :46, :50
    assert four.frame["volume"].to_list() == [_sums(0), _sums(1), _sums(2), _sums(3, 4)]
    assert any("3 min early" in line for line in four.remarks)
    odd = _make(_rows(90, 10))  # ends 13:31:30, :33, :34:30, :36, :37:30, :39, :40:30, :42, :43:30, :45
    assert odd.frame["volume"].to_list() == [_sums(0, 1, 2), _sums(3, 4, 5), _sums(6, 7, 8, 9)]
    assert not any("made of" in line and "fewer" in line for line in odd.remarks)


@pytest.mark.parametrize("seconds", [10, 15, 30, 60])
def test_seconds_and_minutes_that_divide_five_lie_across_nothing(seconds: int) -> None:
    per_bar = 300 // seconds
    got = _make(_rows(seconds, per_bar + 1))
    assert got.frame["volume"].to_list() == [_sums(*range(per_bar)), _sums(per_bar)]
    assert not any("across" in line for line in got.remarks)


def test_rows_stamped_by_their_ends_make_the_same_bars() -> None:
    for seconds in (60, 120, 180, 240):
        opens = _make(_rows(seconds, 12))
        ends = _make(_rows(seconds, 12, start=OPEN + timedelta(seconds=seconds)), ends=True)
        assert ends.frame.equals(opens.frame)


def test_rows_counted_from_midnight_keep_their_own_grid() -> None:
    # 4-minute rows from midnight: 13:28 begins before the open of New York; 13:32 ends at 13:36
    got = _make(_rows(240, 4, start=datetime(2026, 6, 1, 13, 28)))
    assert got.rejects["reason"].to_list() == [OUTSIDE]
    assert got.frame.select("ts", "volume").rows() == [
        (utc("2026-06-01T13:35"), _sums(1, 2)),
        (utc("2026-06-01T13:40"), _sums(3)),
    ]
    torn = pl.concat([_rows(240, 40), rows(flat("A", "2026-06-01T16:11:00"))])  # the last of them 16:06
    assert _make(torn).rejects["reason"].to_list() == ["not on the 4-minute grid"]


def test_the_close_of_trading_and_the_lunch_break_cut_the_last_row_short() -> None:
    last = _make(_rows(240, 98)).frame  # the row from 19:58 ends with trading at 20:00
    assert last["ts"][-1] == utc("2026-06-01T19:55")
    assert last["close"][-1] == 10.0 + 97
    lunch = _make(_rows(240, 30, start=datetime(2026, 6, 1, 1, 30)), XSHG)  # 09:30 to 11:30 in Shanghai
    assert lunch.rejects.is_empty()
    assert lunch.frame["ts"][-1] == utc("2026-06-01T03:25")


def test_rows_missing_inside_a_bar_are_counted_and_nothing_is_filled() -> None:
    got = _make(_rows(60, 16, skip=(3, 7, 8)))
    assert got.frame["volume"].to_list() == [_sums(0, 1, 2, 4), _sums(5, 6, 9), _sums(*range(10, 15)), _sums(15)]
    assert any(line.endswith("no row being there: 2") for line in got.remarks)


@pytest.mark.parametrize("seconds", [60, 120, 180, 240])
def test_no_bar_changes_with_what_happens_after_its_close(seconds: int) -> None:
    frame = _rows(seconds, 7200 // seconds)
    whole = _make(frame).frame
    for bar in whole.iter_rows(named=True):
        end = bar["ts"] + BAR
        # everything a reader could not know at the close of the bar: rows that end after it
        later = pl.col("ts") + pl.duration(seconds=seconds) > end
        changed = frame.with_columns(pl.when(later).then(pl.col(name) * 3).otherwise(name).alias(name)
                                     for name in ("open", "high", "low", "close", "volume"))  # fmt: skip
        for other in (_make(changed).frame, _make(frame.filter(~later)).frame):
            assert other.filter(pl.col("ts") == bar["ts"]).row(0, named=True) == bar


def test_minutes_with_holes_are_not_taken_for_two_minute_rows() -> None:
    # trades in minutes 0 2 4 7 9 11 14 16 18: the usual distance is 2 minutes, but 3 is no multiple of it
    stamps = [OPEN + timedelta(minutes=minute) for minute in (0, 2, 4, 7, 9, 11, 14, 16, 18)]
    got = _make(rows(*(flat("A", stamp.isoformat()) for stamp in stamps)))
    assert got.frame.is_empty()
    assert "2-minute as it seems, but 2 of 8 distances are no multiple" in got.failures["A"].message


@pytest.mark.parametrize(("step", "count"), [(60, 8), (120, 5)])
def test_an_unfinished_bar_is_held_back_by_the_clock_and_stored_after_it(tmp_path: Path, step: int, count: int) -> None:
    path = tmp_path / "A.csv"
    _rows(step, count).write_csv(path, datetime_format="%Y-%m-%dT%H:%M:%SZ")
    inside = ingest(from_files(path), Workspace(tmp_path / "a"), now=utc("2026-06-01T13:39"))
    assert (inside.symbols[0].new, inside.symbols[0].held) == (1, 1)
    after = ingest(from_files(path), Workspace(tmp_path / "b"), now=utc("2026-06-01T13:45"))
    assert (after.symbols[0].new, after.symbols[0].held) == (2, 0)
    assert scan_bars(Workspace(tmp_path / "b")).collect()["ts"][-1] == utc("2026-06-01T13:35")
    assert any("13:35Z is made of 3 of 5 rows" in line for line in after.remarks) == (step == 60)


def test_round_the_clock_rows_are_counted_from_midnight() -> None:
    got = _make(_rows(120, 6, start=datetime(2026, 6, 6, 23, 54)), ROUND)  # a Saturday; across midnight
    assert got.frame.select("ts", "volume").rows() == [
        (utc("2026-06-06T23:55"), _sums(0, 1, 2)),
        (utc("2026-06-07T00:00"), _sums(3, 4)),
        (utc("2026-06-07T00:05"), _sums(5)),
    ]
