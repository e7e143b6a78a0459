"""In: sessions around DST, half days, breaks, without end. Out: the clock of each session, by its calendar."""

from __future__ import annotations

import math
from datetime import timedelta

import polars as pl
import pytest

from klinepred.calendar import place
from tests.features.frames import float64, market, prices_times

CLOCK = ("clock__progress", "clock__sine", "clock__cosine", "clock__opening_6")


def _on(table: pl.DataFrame, *days: str) -> list[list[dict[str, float]]]:
    rows = table.with_columns(day=pl.col("ts").dt.strftime("%Y-%m-%d"))
    return [rows.filter(pl.col("day") == day).select(CLOCK).to_dicts() for day in days]


@pytest.mark.parametrize(("start", "friday", "monday"), [
    ("2026-03-05", "2026-03-06", "2026-03-09"),
    ("2026-10-29", "2026-10-30", "2026-11-02"),
])  # fmt: skip
def test_the_session_begins_at_0_on_either_side_of_the_change_of_the_clocks(
    start: str, friday: str, monday: str
) -> None:
    bars = market("A", start=start, days=6)
    opens = bars.filter(place(bars)["bar"] == 0)["ts"].dt.time().unique()
    assert opens.len() == 2  # in UTC: an offset would have it wrong
    before, after = _on(float64(bars), friday, monday)
    assert len(before) == len(after) == 78
    assert before == after
    assert before[0] == {"clock__progress": 0.0, "clock__sine": 0.0, "clock__cosine": 1.0, "clock__opening_6": 1.0}
    assert [row["clock__opening_6"] for row in before[:8]] == pytest.approx(
        [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0, 0]
    )


def test_a_half_day_has_the_clock_of_its_own_length() -> None:
    bars = market("A", start="2026-11-25", days=4)  # 27 November closes at 13:00 New York
    whole, half = _on(float64(bars), "2026-11-25", "2026-11-27")
    assert (len(whole), len(half)) == (78, 42)
    assert [row["clock__progress"] for row in half] == pytest.approx([bar / 42 for bar in range(42)])
    assert half[21]["clock__sine"] == pytest.approx(0.0, abs=1e-12)
    assert half[21]["clock__cosine"] == pytest.approx(-1.0)


def test_the_clock_runs_on_over_a_lunch_break() -> None:
    bars = market("A", "XHKG", start="2026-06-02", days=1)
    (day,) = _on(float64(bars), "2026-06-02")
    assert len(day) == 66
    assert [row["clock__progress"] for row in day] == pytest.approx([bar / 66 for bar in range(66)])


def test_around_the_clock_a_day_is_288_bars_of_utc() -> None:
    bars = market("A", "24/7", start="2026-06-02", days=2)
    one, two = _on(float64(bars), "2026-06-02", "2026-06-03")
    assert one == two
    assert [row["clock__progress"] for row in one] == pytest.approx([bar / 288 for bar in range(288)])
    assert one[72]["clock__sine"] == pytest.approx(1.0)


def test_the_weekday_is_that_of_the_session() -> None:
    table = float64(market("A", start="2026-06-01", days=5))
    days = table.group_by(pl.col("ts").dt.date().alias("day"), maintain_order=True).agg(pl.col("clock__weekday"))
    assert [sorted(set(values)) for values in days["clock__weekday"]] == [[-1.0], [-0.5], [0.0], [0.5], [1.0]]
    # New Zealand's Monday begins on Sunday in UTC
    auckland = market("A", "XNZE", start="2026-06-07", days=1)
    assert auckland["ts"].dt.weekday()[0] == 7
    assert float64(auckland)["clock__weekday"].unique().to_list() == [-1.0]


def test_missing_bars_do_not_move_the_clock() -> None:
    bars = market("A", start="2026-06-01", days=3)
    holes = bars.filter((pl.int_range(pl.len()) % 7).ne(3))
    assert (
        float64(holes)
        .select("ts", *CLOCK)
        .equals(float64(bars).join(holes.select("ts"), on="ts", how="semi").select("ts", *CLOCK))
    )


def test_the_clock_needs_no_price() -> None:
    bars = market("A", start="2026-06-01", days=3)
    assert float64(bars).select(CLOCK).equals(float64(prices_times(bars, 3.0, volume=0.0)).select(CLOCK))


def test_the_opening_gap_is_of_the_session_before_and_held_through_the_day() -> None:
    bars = market("A", start="2026-06-01", days=5)
    table = float64(bars).with_columns(place(bars).select("session", "bar"))
    by_day = table.group_by("session", maintain_order=True).agg(pl.col("price__overnight_gap").unique())
    assert [len(values) for values in by_day["price__overnight_gap"]] == [1] * 5
    assert by_day["price__overnight_gap"][0].to_list() == [None]
    first = bars.row(78, named=True)
    last = bars.row(77, named=True)
    r = bars["close"].log().diff()[1:78].to_numpy()
    s = math.sqrt(float((r**2).mean()))
    gap = math.log(first["open"] / last["close"]) / (8.0 * s)
    assert by_day["price__overnight_gap"][1].to_list() == pytest.approx([gap])


def test_no_opening_gap_where_the_first_bar_or_the_day_before_is_missing() -> None:
    bars = market("A", start="2026-06-01", days=5)
    session, bar = place(bars)["session"], place(bars)["bar"]
    second = session.unique().sort()[1]
    headless = bars.filter((session != second) | (bar > 0))
    without = bars.filter(session != second)
    for cut, day in ((headless, second), (without, second + timedelta(days=1))):
        table = float64(cut)
        here = place(cut)["session"] == day
        assert table.filter(here)["price__overnight_gap"].null_count() == here.sum()
    short = bars.filter((session != second) | (bar < 70))
    table = float64(short).filter(place(short)["session"] == second + timedelta(days=1))
    assert table["price__overnight_gap"].null_count() == 0
