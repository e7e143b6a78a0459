"""In: raw rows with known faults. Out: each lands where it must, is counted once, and nothing is changed or filled."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klinepred.bars.check import check_bars
from klinepred.bars.clean import CONFLICT, OFF_GRID, OUTSIDE, clean
from klinepred.errors import CalendarError
from klinepred.schema import BAR_SCHEMA, TS
from tests.bars.made import NOW, XNYS, flat, rows, utc, walk

NAN = float("nan")


def test_every_fault_gets_its_reason() -> None:
    day = "2026-06-01T"
    raw = rows(
        flat("A", day + "13:30:00"),
        ("A", day + "13:35:00", 10.0, 10.0, 10.0, NAN, 1.0),
        ("A", day + "13:40:00", 10.0, 9.0, 10.0, 10.0, 1.0),
        ("A", day + "13:45:00", 10.0, 10.0, 9.0, 11.0, 1.0),
        ("A", day + "13:50:00", 10.0, 12.0, 11.0, 11.0, 1.0),
        ("A", day + "13:55:00", 10.0, 10.0, 0.0, 10.0, 1.0),
        ("A", day + "14:00:00", 10.0, 10.0, 10.0, 10.0, -1.0),
        ("A", day + "14:05:00", 10.0, float("inf"), 10.0, 10.0, 1.0),
        ("A", day + "14:10:00", 10.0, 10.0, 10.0, 10.0, None),
        flat("A", day + "14:17:00"),
        flat("A", day + "20:00:00"),
        flat("A", day + "14:20:00", 10.0),
        flat("A", day + "14:20:00", 11.0),
        ("A", None, 10.0, 10.0, 10.0, 10.0, 1.0),
        (None, day + "14:25:00", 10.0, 10.0, 10.0, 10.0, 1.0),
    )
    out = clean(raw, clock=XNYS, now=NOW)
    reasons = dict(out.rejects.group_by("reason").len().iter_rows())
    assert reasons == {
        "close is missing": 1,
        "high is below low": 1,
        "high is below open or close": 1,
        "low is above open or close": 1,
        "a price is zero or negative": 1,
        "volume is negative": 1,
        "a value is infinite": 1,
        "volume is missing": 1,
        OFF_GRID: 1,
        OUTSIDE: 1,
        CONFLICT: 2,
        "the time stamp cannot be read": 1,
        "no possible name of a symbol": 1,
    }
    assert out.bars["ts"].to_list() == [utc(day + "13:30:00")]


def test_repeats_are_counted_and_empty_rows_are_missing_not_filled() -> None:
    raw = rows(
        flat("A", "2026-06-01T13:40:00", 12.0),
        flat("A", "2026-06-01T13:30:00"),
        flat("A", "2026-06-01T13:30:00"),
        flat("A", "2026-06-01T13:30:00"),
        ("A", "2026-06-01T13:35:00", None, NAN, None, None, 0.0),
    )
    out = clean(raw, clock=XNYS, now=NOW)
    count = out.counts.row(0, named=True)
    assert (count["received"], count["duplicates"], count["empty"]) == (5, 2, 1)
    assert count["last_slot"] - count["first_slot"] + 1 == 3
    assert out.bars["close"].to_list() == [10.0, 12.0]
    assert out.rejects.is_empty()


def test_a_bar_is_finished_five_minutes_after_its_open() -> None:
    raw = rows(flat("A", "2026-06-01T13:30:00"), flat("A", "2026-06-01T13:35:00"))
    just = clean(raw, clock=XNYS, now=utc("2026-06-01T13:40:00"))
    assert just.bars.height == 2
    early = clean(raw, clock=XNYS, now=utc("2026-06-01T13:39:59"))
    assert early.bars.height == 1
    assert early.counts.row(0, named=True)["held"] == 1
    assert early.rejects.is_empty()


@given(st.data())
def test_every_row_is_in_exactly_one_place(data: st.DataObject) -> None:
    good = walk(["A", "B"], days=1).head(40)
    spots = data.draw(st.lists(st.integers(0, good.height - 1), min_size=1, max_size=60))
    faults = data.draw(
        st.lists(st.sampled_from([None, 0.0, -5.0, NAN, float("inf"), 1e9]), min_size=len(spots), max_size=len(spots))
    )
    names = data.draw(st.lists(st.sampled_from([*BAR_SCHEMA][2:]), min_size=len(spots), max_size=len(spots)))
    table = [
        {**good.row(spot, named=True), name: fault} for spot, name, fault in zip(spots, names, faults, strict=True)
    ]
    raw = pl.DataFrame(table, schema=BAR_SCHEMA)
    out = clean(raw, clock=XNYS, now=NOW)
    total = out.counts.select(pl.col("duplicates", "empty", "held").sum()).row(0)
    assert out.bars.height + out.rejects.height + sum(total) == raw.height
    check_bars(out.bars, clock=XNYS)
    assert out.bars.join(raw, on=list(BAR_SCHEMA), how="anti").is_empty()


@pytest.mark.parametrize("year", [1970, 2099])
def test_one_row_of_a_year_no_calendar_knows_is_set_aside_and_the_others_are_stored(year: int) -> None:
    good = walk(["A"]).head(10)
    odd = good.head(1).with_columns(ts=pl.lit(datetime(year, 6, 1, 14, 0, tzinfo=UTC)).cast(TS))
    cleaned = clean(pl.concat([good, odd]), clock=XNYS, now=NOW)
    assert cleaned.bars.height == 10
    assert cleaned.rejects["reason"].to_list() == [OUTSIDE]
    assert cleaned.counts["received"].to_list() == [11]


def test_stamps_that_are_mostly_of_such_years_are_refused_as_a_wrong_unit() -> None:
    wrong = walk(["A"]).with_columns(ts=pl.col("ts") - pl.duration(days=365 * 56))
    with pytest.raises(CalendarError, match="unit, zone"):
        clean(wrong, clock=XNYS, now=NOW)
