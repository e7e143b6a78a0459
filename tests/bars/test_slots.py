"""In: stamps on and off the grid, of several calendars. Out: `locate` says of each what `place` says, row by row."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
import pytest

from klinepred.bars.slots import locate
from klinepred.calendar import Clock, grid, place
from klinepred.schema import CALENDAR, TS
from tests.bars.made import XNYS, utc


def _series(stamps: list[datetime | None]) -> pl.Series:
    return pl.Series("ts", stamps, dtype=TS)


def test_off_grid_is_told_from_closed() -> None:
    stamps = ["2026-06-01T13:30:00", "2026-06-01T13:31:00", "2026-06-01T20:00:00", "2026-06-01T20:02:00"]
    placed = locate(_series([utc(one) for one in stamps]), XNYS)
    assert placed["slot"].is_null().to_list() == [False, True, True, True]
    assert placed["in_session"].to_list() == [True, True, False, False]
    assert placed["month"].to_list() == ["2026-06"] * 4


def test_order_repeats_nulls_and_impossible_years_are_kept_row_by_row() -> None:
    late, early = utc("2026-07-01T13:30:00"), utc("2026-06-30T19:55:00")
    placed = locate(_series([late, None, early, utc("1931-01-05T15:00:00"), late]), XNYS)
    slots = placed["slot"].to_list()
    assert slots[0] == slots[4] == slots[2] + 1
    assert slots[1] is None
    assert slots[3] is None
    assert placed["in_session"].to_list() == [True, False, True, False, True]
    assert placed["month"].to_list() == ["2026-07", None, "2026-06", None, "2026-07"]


def test_nothing_but_nulls_has_no_slot() -> None:
    placed = locate(_series([None, None]), XNYS)
    assert placed["slot"].to_list() == [None, None]
    assert placed["in_session"].to_list() == [False, False]


@pytest.mark.parametrize("name", ["XNYS", "XHKG", "XLON", "24/7", "CMES", "XNYS+extended", "XBOM"])
def test_every_second_minute_has_the_slot_that_the_calendar_gives(name: str) -> None:
    clock = Clock.parse(name)
    first = utc("2025-10-24T00:00:00")  # a change of clocks in Europe and one in America lie inside
    stamps = _series([first + timedelta(minutes=minute) for minute in range(0, 12 * 1440, 2)])
    expected = place(stamps.to_frame().with_columns(pl.lit(name).alias(CALENDAR)))
    placed = locate(stamps, clock)
    assert placed["slot"].to_list() == expected["slot"].to_list()
    assert placed["month"].to_list() == stamps.dt.strftime("%Y-%m").to_list()
    opens = grid(clock, stamps[0], stamps[-1]).get_column("ts")
    inside = {stamp + timedelta(minutes=minute) for stamp in opens for minute in range(5)}
    assert placed["in_session"].to_list() == [stamp in inside for stamp in stamps]
