"""In: bars with known holes. Out: what the calendar expects per session, runs of missing bars, by time of day."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from klinepred.bars.gaps import MOVES, count_moves, count_sessions, find_gaps, share_by_time
from klinepred.calendar import Clock, grid, place
from tests.bars.made import NOW, ROUND, XNYS, utc, walk

XHKG = Clock("XHKG")


def _rows(frame: pl.DataFrame, clock: Clock = XNYS) -> pl.DataFrame:
    return place(frame.with_columns(calendar=pl.lit(str(clock))))


def _without(frame: pl.DataFrame, *stamps: str) -> pl.DataFrame:
    return frame.filter(~pl.col("ts").is_in([utc(stamp) for stamp in stamps]))


def _gaps(rows: pl.DataFrame, clock: Clock = XNYS, now: datetime = NOW) -> list[tuple[str, str, str, int, int]]:
    return [
        (symbol, f"{low:%m-%d %H:%M}", f"{high:%m-%d %H:%M}", bars, sessions)
        for symbol, low, high, bars, sessions in find_gaps(rows, clock, now=now).iter_rows()
    ]


def test_a_half_day_expects_42_bars_and_no_gap_after_its_close() -> None:
    rows = _rows(walk(["A"], start="2026-11-25", days=4))  # Thanksgiving on the 26th, 13:00 New York on the 27th
    counted = count_sessions(rows, XNYS, now=NOW).select("session", "expected", "received", "missing").rows()
    assert [(f"{day:%m-%d}", *rest) for day, *rest in counted] == [("11-25", 78, 78, 0), ("11-27", 42, 42, 0)]
    assert _gaps(rows) == []


def test_a_gap_goes_on_over_a_lunch_break_which_is_no_bar() -> None:
    whole = walk(["A"], clock=XHKG, start="2026-06-01", days=1)  # 09:30-12:00 and 13:00-16:00 Hong Kong, 30 + 36 bars
    rows = _rows(_without(whole, "2026-06-01T03:55", "2026-06-01T05:00", "2026-06-01T05:05"), XHKG)
    assert count_sessions(rows, XHKG, now=NOW)["expected"].to_list() == [66]
    assert _gaps(rows, XHKG) == [("A", "06-01 03:55", "06-01 05:05", 3, 1)]


def test_a_gap_over_a_night_in_the_week_clocks_change_is_one_gap() -> None:
    whole = walk(["A"], start="2026-10-30", days=4)  # closes 20:00 UTC on Friday, opens 14:30 UTC on Monday
    rows = _rows(_without(whole, "2026-10-30T19:50", "2026-10-30T19:55", "2026-11-02T14:30"))
    assert _gaps(rows) == [("A", "10-30 19:50", "11-02 14:30", 3, 2)]
    times = share_by_time(count_moves(rows, XNYS, now=NOW), XNYS)
    assert times.filter(pl.col("missing") > 0).select("time", "expected", "missing").rows() == [
        ("09:30", 2, 1),
        ("15:50", 2, 1),
        ("15:55", 2, 1),
    ]
    assert times["time"].to_list()[0] == "09:30"
    assert times.height == 78


def test_round_the_clock_a_day_has_288_bars_and_midnight_is_no_border() -> None:
    whole = walk(["A"], clock=ROUND, start="2026-06-01", days=3)
    rows = _rows(_without(whole, "2026-06-01T23:55", "2026-06-02T00:00"), ROUND)
    counted = count_sessions(rows, ROUND, now=NOW)
    assert counted["expected"].to_list() == [288, 288, 288]
    assert counted["missing"].to_list() == [1, 1, 0]
    assert _gaps(rows, ROUND) == [("A", "06-01 23:55", "06-02 00:00", 2, 2)]


def test_a_session_that_is_missing_whole_counts_and_so_do_the_edges_of_the_first_and_last() -> None:
    whole = walk(["A", "B"], days=3)  # 1 to 3 June, 13:30 to 20:00 UTC
    late = (pl.col("symbol") == "A") & (pl.col("ts") < utc("2026-06-01T13:40"))
    gone = (pl.col("symbol") == "B") & (pl.col("ts").dt.date() == utc("2026-06-02").date())
    short = pl.col("ts") >= utc("2026-06-03T19:50")
    rows = _rows(whole.filter(~(late | gone | short)))
    assert _gaps(rows) == [
        ("A", "06-01 13:30", "06-01 13:35", 2, 1),
        ("A", "06-03 19:50", "06-03 19:55", 2, 1),
        ("B", "06-02 13:30", "06-02 19:55", 78, 1),
        ("B", "06-03 19:50", "06-03 19:55", 2, 1),
    ]
    # at 19:56 the bar of 19:50 is finished, that of 19:55 is not
    assert [gap[3] for gap in _gaps(rows, now=utc("2026-06-03T19:56"))] == [2, 1, 78, 1]


@pytest.mark.parametrize("clock", [XNYS, XHKG, ROUND])
def test_gaps_are_those_of_a_slow_walk_over_the_grid(clock: Clock) -> None:
    chance = np.random.default_rng(4)
    whole = walk(["A", "B", "C"], clock=clock, start="2026-06-01", days=4)
    rows = _rows(whole.filter(pl.Series(chance.random(whole.height) < 0.7)), clock)
    now = utc("2026-06-04T06:12")
    rows = rows.filter(pl.col("ts") + timedelta(minutes=5) <= now)
    slow = list[tuple[str, str, str, int, int]]()
    for symbol in ("A", "B", "C"):
        own = rows.filter(pl.col("symbol") == symbol)
        have, days = set(own["ts"]), (own["session"].min(), own["session"].max())
        open_run = list[tuple[datetime, object]]()
        expected = grid(clock, utc("2026-05-31"), utc("2026-06-08"))
        expected = expected.filter(pl.col("session").is_between(*days), pl.col("ts") + timedelta(minutes=5) <= now)
        for stamp, day in [*expected.select("ts", "session").iter_rows(), (None, None)]:
            if stamp is not None and stamp not in have:
                open_run.append((stamp, day))
            elif open_run:
                low, high = open_run[0][0], open_run[-1][0]
                touched = len({day for _, day in open_run})
                slow.append((symbol, f"{low:%m-%d %H:%M}", f"{high:%m-%d %H:%M}", len(open_run), touched))
                open_run = []
    assert _gaps(rows, clock, now) == slow
    counted = count_sessions(rows, clock, now=now)
    assert counted["missing"].sum() == sum(gap[3] for gap in slow)
    times = share_by_time(count_moves(rows, clock, now=now), clock)
    assert (times["expected"].sum(), times["missing"].sum()) == (counted["expected"].sum(), counted["missing"].sum())


def test_groups_of_symbols_add_up_by_time_of_day() -> None:
    whole = walk(["A", "B"], days=2)
    rows = _rows(whole.filter(pl.int_range(pl.len()) % 7 > 0))
    apart = [count_moves(rows.filter(pl.col("symbol") == name), XNYS, now=NOW) for name in "AB"]
    together = share_by_time(count_moves(rows, XNYS, now=NOW), XNYS)
    assert share_by_time(pl.concat(apart), XNYS).equals(together)
    assert share_by_time(pl.DataFrame(schema=MOVES), XNYS).is_empty()
