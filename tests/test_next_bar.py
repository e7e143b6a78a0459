"""In: moments. Out: the grid of bars between two, the next expected bar, the newest finished one, by hand."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
import pytest

from klinepred.calendar import Clock, expected_after, grid, newest_finished, place
from klinepred.errors import CalendarError
from klinepred.schema import CALENDAR
from tests.test_calendar import CRYPTO, HONG_KONG, LATE, NYSE, utc


def test_grid_of_a_half_day() -> None:
    bars = grid(NYSE, utc("2026-11-27T00:00"), utc("2026-11-28T00:00"))
    assert bars["ts"].to_list() == [utc("2026-11-27T14:30") + timedelta(minutes=5 * k) for k in range(42)]
    assert bars["bar"].to_list() == list(range(42))
    assert bars["slot"].diff().slice(1).unique().to_list() == [1]


def test_grid_starts_at_start_and_ends_before_end() -> None:
    bars = grid(NYSE, utc("2026-03-06T20:51"), utc("2026-03-09T13:40"))
    assert bars["ts"].to_list() == [utc("2026-03-06T20:55"), utc("2026-03-09T13:30"), utc("2026-03-09T13:35")]
    assert grid(NYSE, utc("2026-03-07T00:00"), utc("2026-03-08T00:00")).is_empty()


def test_grid_and_place_agree() -> None:
    for clock in (NYSE, HONG_KONG, CRYPTO):
        bars = grid(clock, utc("2026-05-28T00:00"), utc("2026-06-04T00:00"))
        rows = place(bars.select("ts", pl.lit(str(clock)).alias(CALENDAR)))
        assert rows.select("ts", "session", "bar", "slot").equals(bars)


@pytest.mark.parametrize(
    ("stamp", "steps", "answer", "clock"),
    [
        ("2026-03-06T20:50", 1, "2026-03-06T20:55", NYSE),
        ("2026-03-06T20:55", 1, "2026-03-09T13:30", NYSE),  # Friday to Monday, clocks changed between
        ("2025-08-28T19:55", 1, "2025-08-29T13:30", NYSE),
        ("2026-11-25T20:55", 1, "2026-11-27T14:30", NYSE),  # Thanksgiving
        ("2026-11-27T14:30", 42, "2026-11-30T14:30", NYSE),  # over a half day
        ("2026-06-03T03:55", 1, "2026-06-03T05:00", HONG_KONG),
        ("2026-06-03T07:55", 66, "2026-06-04T07:55", HONG_KONG),
        ("2026-06-06T23:55", 1, "2026-06-07T00:00", CRYPTO),
        ("2026-03-07T00:55", 1, "2026-03-09T08:00", LATE),
    ],
)
def test_the_next_expected_bar(stamp: str, steps: int, answer: str, clock: Clock) -> None:
    assert _after(clock, stamp, steps) == utc(answer)


def _after(clock: Clock, stamp: str, steps: int = 1) -> datetime:
    (answer,) = expected_after(clock, pl.Series([utc(stamp)]), steps)
    return answer  # type: ignore[no-any-return]


@pytest.mark.parametrize("clock", [NYSE, HONG_KONG, CRYPTO, LATE], ids=str)
@pytest.mark.parametrize("steps", [1, 7, 80])
def test_the_next_expected_bars_of_many_stamps_in_any_order(clock: Clock, steps: int) -> None:
    """By looking each up in the list of all bars, which no slot is read for."""
    bars = grid(clock, utc("2026-02-20T00:00"), utc("2026-04-10T00:00")).get_column("ts").to_list()
    after = dict(zip(bars, bars[steps:], strict=False))
    some = list(bars[:-steps][::-11] + bars[:40:13] * 2)
    assert expected_after(clock, pl.Series(some), steps).to_list() == [after[stamp] for stamp in some]


def test_the_next_bar_after_no_bar_is_refused() -> None:
    for stamp in ("2026-06-03T20:00", "2026-06-03T14:31", "2026-06-06T14:30"):
        with pytest.raises(CalendarError, match="market is closed or no bar opens"):
            _after(NYSE, stamp)
    with pytest.raises(CalendarError, match="end of the recorded calendar"):
        _after(NYSE, "2026-06-03T13:30", 10_000_000)


@pytest.mark.parametrize(
    ("now", "answer", "clock"),
    [
        ("2026-06-03T16:30", "2026-06-03T16:25", NYSE),
        ("2026-06-03T16:34:59.999999", "2026-06-03T16:25", NYSE),
        ("2026-06-03T16:35", "2026-06-03T16:30", NYSE),
        ("2026-06-03T20:00", "2026-06-03T19:55", NYSE),
        ("2026-06-06T12:00", "2026-06-05T19:55", NYSE),  # Saturday
        ("2026-06-08T13:34", "2026-06-05T19:55", NYSE),  # Monday, first bar not yet finished
        ("2026-06-08T13:35", "2026-06-08T13:30", NYSE),
        ("2026-11-27T19:00", "2026-11-27T17:55", NYSE),
        ("2026-06-03T04:30", "2026-06-03T03:55", HONG_KONG),  # at lunch
        ("2026-06-06T00:03", "2026-06-05T23:55", CRYPTO),
        ("1989-12-31T00:00", None, NYSE),
    ],
)
def test_the_newest_finished_bar(now: str, answer: str | None, clock: Clock) -> None:
    assert newest_finished(clock, utc(now)) == (utc(answer) if answer else None)
