"""In: raw rows with known faults. Out: each lands where it must, is counted once, and nothing is changed or filled."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klinepred.bars.check import check_bars
from klinepred.bars.clean import CONFLICT, OFF_GRID, OUTSIDE, clean, is_sorted, pieces
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


def test_what_is_set_aside_is_in_order_whatever_the_order_it_came_in() -> None:
    """Two rows of one stamp, one that no bar can be and one of a conflict, among others: by symbol, stamp, reason."""
    stamp = "2026-06-01T14:20:00"
    faults = [("B", stamp, 10.0, 9.0, 10.0, 10.0, 1.0), ("A", stamp, 10.0, 10.0, 10.0, NAN, 1.0)]
    conflict = [flat("A", stamp, 10.0), flat("A", stamp, 11.0)]
    less = [("A", stamp, 10.0, 10.0, 10.0, 10.0, -1.0), ("A", "2026-06-01T14:15:00", 10.0, 9.0, 10.0, 10.0, 1.0)]
    given = [*faults, *conflict, *less]
    for order in (given, given[::-1]):
        out = clean(rows(*order), clock=XNYS, now=NOW).rejects
        assert out.select("symbol", "ts", "reason").rows() == sorted(out.select("symbol", "ts", "reason").rows())
        assert out["reason"].n_unique() == 4


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


@pytest.mark.parametrize("odd", [5, 6])
def test_rows_of_impossible_years_are_set_aside_up_to_half_of_all(odd: int) -> None:
    good = walk(["A"]).head(5)
    stamps = [datetime(1970, 6, 1, 14, 5 * number, tzinfo=UTC) for number in range(odd)]
    raw = pl.concat([good, walk(["A"]).head(odd).with_columns(ts=pl.Series(stamps, dtype=TS))])
    if odd > 5:
        with pytest.raises(CalendarError):
            clean(raw, clock=XNYS, now=NOW)
    else:
        assert clean(raw, clock=XNYS, now=NOW).rejects.height == 5


def test_of_unfinished_and_empty_rows_the_first_twenty_are_listed_and_all_are_counted() -> None:
    bars = walk(["A", "B"], days=1)  # 78 bars each
    now = bars["ts"][77 - 25]  # 26 bars of each symbol open then or later; the one before is just finished
    hollow = pl.col("symbol") == "B"
    raw = bars.with_columns(pl.when(~hollow).then(name).alias(name) for name in ("open", "high", "low", "close"))
    out = clean(raw.sample(fraction=1.0, shuffle=True, seed=1), clock=XNYS, now=now)
    a, b = out.counts.sort("symbol").iter_rows(named=True)
    stamps = bars["ts"].head(78).to_list()
    assert (a["received"], a["held"], a["empty"], a["duplicates"], a["zero_volume"]) == (78, 26, 0, 0, 0)
    assert sorted(a["held_ts"]) == stamps[52:72]
    assert (b["received"], b["held"], b["empty"]) == (78, 0, 78)
    assert sorted(b["empty_ts"]) == stamps[:20]
    assert (a["last_slot"] - a["first_slot"], b["last_slot"] - b["first_slot"]) == (51, 77)  # held rows are no span
    assert out.bars["ts"].to_list() == stamps[:52]
    assert out.rejects.is_empty()


def test_bars_without_trade_are_counted_by_symbol_and_kept() -> None:
    raw = rows(
        flat("A", "2026-06-01T13:30:00", volume=0.0),
        flat("A", "2026-06-01T13:35:00", volume=1.0),
        flat("B", "2026-06-01T13:30:00", volume=0.0),
        flat("B", "2026-06-01T13:35:00", volume=0.0),
        flat("C", "2026-06-01T13:30:00", volume=2.0),
    )
    out = clean(raw, clock=XNYS, now=NOW)
    assert dict(out.counts.select("symbol", "zero_volume").iter_rows()) == {"A": 1, "B": 2, "C": 0}
    assert out.bars.select(BAR_SCHEMA.keys()).equals(raw)
    assert out.bars.schema == {**BAR_SCHEMA, "month": pl.String(), "slot": pl.Int64()}
    assert out.bars["month"].to_list() == ["2026-06"] * 5


def test_rows_that_differ_are_set_aside_with_all_their_repeats_counted_once() -> None:
    raw = rows(
        flat("B", "2026-06-01T13:35:00", 9.0),
        flat("A", "2026-06-01T13:35:00", 9.0),
        flat("A", "2026-06-01T13:30:00", 8.0),
        flat("A", "2026-06-01T13:35:00", 9.0),
        flat("A", "2026-06-01T13:35:00", 7.0),
        flat("B", "2026-06-01T13:35:00", 9.0),
        flat("B", "2026-06-01T13:30:00", 6.0),
    )
    out = clean(raw, clock=XNYS, now=NOW)
    got = out.bars.select("symbol", pl.col("ts").dt.minute(), "close").rows()
    assert got == [("A", 30, 8.0), ("B", 30, 6.0), ("B", 35, 9.0)]
    assert sorted(out.rejects.select("symbol", "close", "reason").rows()) == [
        ("A", 7.0, CONFLICT),
        ("A", 9.0, CONFLICT),
    ]
    assert dict(out.counts.select("symbol", "duplicates").iter_rows()) == {"A": 1, "B": 1}
    assert out.counts.schema["duplicates"] == pl.UInt32


def test_sorted_means_by_symbol_and_then_by_rising_time() -> None:
    def frame(*pairs: tuple[str, int]) -> pl.DataFrame:
        return pl.DataFrame([*pairs], schema={"symbol": pl.String, "ts": pl.Int64}, orient="row")

    for good in (frame(), frame(("A", 1)), frame(("A", 1), ("A", 2), ("B", 0), ("B", 9), ("C", 9))):
        assert is_sorted(good)
    for bad in (
        frame(("A", 1), ("A", 1)),
        frame(("A", 2), ("A", 1)),
        frame(("B", 1), ("A", 2)),
        frame(("B", 1), ("A", 0)),
    ):
        assert not is_sorted(bad)
    assert not is_sorted(frame(("A", 1), (None, 2)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows_of", "spans"), [(3, [(0, 4), (3, 7), (6, 8)]), (7, [(0, 8)]), (8, [(0, 8)]), (6, [(0, 7), (6, 8)])]
)
def test_pieces_begin_with_the_last_row_of_the_one_before(rows_of: int, spans: list[tuple[int, int]]) -> None:
    frame = pl.DataFrame({"n": range(8)})
    got = [part["n"].to_list() for part in pieces(frame, rows_of)]
    assert got == [list(range(low, high)) for low, high in spans]
    assert [part.height for part in pieces(frame.clear(), rows_of)] == [0]
