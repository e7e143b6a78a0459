"""In: calendars. Out: sessions, bars and places agree with answers worked out by hand from the venues' own hours."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta

import polars as pl
import pytest

from klinepred.calendar import Clock, place, segments, zone_of
from klinepred.errors import CalendarError
from klinepred.schema import CALENDAR, TS

NYSE, HONG_KONG, CRYPTO = Clock("XNYS"), Clock("XHKG"), Clock("24/7")
LATE = Clock("XNYS", "extended")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def placed(stamps: list[str | None], clock: Clock = NYSE) -> pl.DataFrame:
    rows = {"ts": [utc(text) if text else None for text in stamps], CALENDAR: [str(clock)] * len(stamps)}
    return place(pl.DataFrame(rows, schema={"ts": TS, CALENDAR: pl.String}))


def session(day: date, clock: Clock) -> list[tuple[datetime, datetime, int, int]]:
    """Open, close, first bar, bars of the session, per stretch of trading."""
    rows = segments(clock).filter(pl.col("session") == day)
    return rows.select("open", "close", "first_bar", "session_bars").rows()


# --- sessions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("day", "open_", "close", "bars"),
    [
        (date(2026, 3, 6), "2026-03-06T14:30", "2026-03-06T21:00", 78),  # Friday before the clocks change
        (date(2026, 3, 9), "2026-03-09T13:30", "2026-03-09T20:00", 78),  # Monday after
        (date(2026, 10, 30), "2026-10-30T13:30", "2026-10-30T20:00", 78),
        (date(2026, 11, 2), "2026-11-02T14:30", "2026-11-02T21:00", 78),
        (date(2026, 11, 27), "2026-11-27T14:30", "2026-11-27T18:00", 42),  # day after Thanksgiving, to 13:00
        (date(2025, 7, 3), "2025-07-03T13:30", "2025-07-03T17:00", 42),
        (date(2025, 12, 24), "2025-12-24T14:30", "2025-12-24T18:00", 42),
    ],
)
def test_new_york_trades_390_minutes_and_210_on_half_days(day: date, open_: str, close: str, bars: int) -> None:
    assert session(day, NYSE) == [(utc(open_), utc(close), 0, bars)]


@pytest.mark.parametrize("day", [date(2026, 3, 7), date(2026, 3, 8), date(2026, 11, 26), date(2026, 7, 3)])
def test_new_york_is_closed_at_weekends_and_on_holidays(day: date) -> None:
    assert session(day, NYSE) == []


def test_hong_kong_has_lunch_between_two_stretches_of_one_session() -> None:
    # 09:30-12:00 and 13:00-16:00 at UTC+8: 30 and 36 bars
    assert session(date(2026, 6, 3), HONG_KONG) == [
        (utc("2026-06-03T01:30"), utc("2026-06-03T04:00"), 0, 66),
        (utc("2026-06-03T05:00"), utc("2026-06-03T08:00"), 30, 66),
    ]
    # Christmas Eve: the morning alone
    assert session(date(2025, 12, 24), HONG_KONG) == [(utc("2025-12-24T01:30"), utc("2025-12-24T04:00"), 0, 30)]


def test_round_the_clock_is_one_stretch_of_days_by_utc() -> None:
    assert session(date(2026, 3, 8), CRYPTO) == [(utc("2026-03-08T00:00"), utc("2026-03-09T00:00"), 0, 288)]
    assert segments(CRYPTO)["segment"].n_unique() == 1


def test_futures_open_the_evening_before_their_session() -> None:
    # Chicago 17:00 the day before, in summer 22:00 UTC
    (row,) = session(date(2026, 6, 3), Clock("CMES"))
    assert row[0] == utc("2026-06-02T22:00")
    assert placed(["2026-06-02T23:00"], Clock("CMES"))["session"].to_list() == [date(2026, 6, 3)]


def test_extended_hours_run_from_4_to_20_and_to_17_on_half_days() -> None:
    assert session(date(2026, 3, 6), LATE) == [(utc("2026-03-06T09:00"), utc("2026-03-07T01:00"), 0, 192)]
    assert session(date(2026, 3, 9), LATE) == [(utc("2026-03-09T08:00"), utc("2026-03-10T00:00"), 0, 192)]
    assert session(date(2026, 11, 27), LATE) == [(utc("2026-11-27T09:00"), utc("2026-11-27T22:00"), 0, 156)]
    late = placed(["2026-03-07T00:55", "2026-03-07T01:00"], LATE)
    assert late["session"].to_list() == [date(2026, 3, 6), None], "an evening bar belongs to its New York day"
    with pytest.raises(CalendarError, match="use --hours regular"):
        segments(Clock("XLON", "extended"))


def test_calendars_recorded_for_fewer_years_are_read_as_far_as_they_go() -> None:
    assert segments(Clock("XTKS"))["session"][0] == date(1997, 1, 6), "Tokyo is recorded from 1997 on"
    assert segments(NYSE)["session"][0] == date(1990, 1, 2)


def test_slots_and_segments_count_without_a_hole() -> None:
    for clock in (NYSE, HONG_KONG, CRYPTO, LATE):
        table = segments(clock).with_columns(bars=(pl.col("close") - pl.col("open")).dt.total_minutes() // 5)
        assert (table["first_slot"] == table["bars"].cum_sum() - table["bars"]).all()
        joined = table["open"] == table["close"].shift(1)
        assert ((table["segment"].diff() == 0) == joined).slice(1).all()


# --- place -----------------------------------------------------------------------------------------------------------


def test_place_on_either_side_of_a_weekend_with_a_clock_change() -> None:
    rows = placed(["2026-03-06T14:30", "2026-03-06T20:55", "2026-03-09T13:30", "2026-03-09T13:35"])
    assert rows["session"].to_list() == [date(2026, 3, 6)] * 2 + [date(2026, 3, 9)] * 2
    assert rows["bar"].to_list() == [0, 77, 0, 1]
    slots = rows["slot"].to_list()
    assert [slot - slots[0] for slot in slots] == [0, 77, 78, 79], "nothing is missing between Friday and Monday"
    first, last, monday, after = rows["segment"].to_list()
    assert (last - first, monday - last, after - monday) == (0, 1, 0)


def test_place_over_lunch_goes_on_counting_in_another_segment() -> None:
    rows = placed(["2026-06-03T03:55", "2026-06-03T05:00"], HONG_KONG)
    assert rows["bar"].to_list() == [29, 30]
    assert rows["session_bars"].to_list() == [66, 66]
    assert rows["slot"].diff().to_list() == [None, 1]
    assert rows["segment"].diff().to_list() == [None, 1]


def test_place_round_the_clock_goes_on_over_midnight() -> None:
    rows = placed(["2026-03-07T23:55", "2026-03-08T00:00"], CRYPTO)
    assert rows["bar"].to_list() == [287, 0]
    assert rows["slot"].diff().to_list() == [None, 1]
    assert rows["segment"].diff().to_list() == [None, 0]


@pytest.mark.parametrize(
    ("stamp", "clock"),
    [
        ("2026-06-03T14:32", NYSE),  # off the grid
        ("2026-06-03T14:30:00.000001", NYSE),
        ("2026-06-03T20:00", NYSE),  # the close is no bar
        ("2026-06-03T13:25", NYSE),  # before the open
        ("2026-11-27T18:00", NYSE),  # after an early close
        ("2026-06-06T15:00", NYSE),  # Saturday
        ("2026-06-03T04:00", HONG_KONG),  # lunch
        ("2026-06-03T04:55", HONG_KONG),
        (None, NYSE),
    ],
)
def test_stamps_off_the_grid_or_out_of_session_have_no_place(stamp: str | None, clock: Clock) -> None:
    rows = placed([stamp, "2026-06-03T15:00" if clock == NYSE else "2026-06-03T05:00"], clock)
    assert rows.select("session", "bar", "session_bars", "slot", "segment").row(0) == (None,) * 5
    assert None not in rows.select("session", "bar", "session_bars", "slot", "segment").row(1)


def test_place_keeps_rows_order_and_other_columns_of_mixed_calendars() -> None:
    bars = pl.DataFrame(
        {
            "symbol": ["B", "A", "C", "A"],
            "ts": [utc("2026-06-03T13:30"), utc("2026-06-06T12:00"), utc("2026-06-03T05:00"), utc("2026-06-03T13:30")],
            CALENDAR: ["XNYS", "24/7", "XHKG", "24/7"],
        },
        schema_overrides={"ts": TS},
    )
    for kind in (pl.String, pl.Categorical):
        rows = place(bars.with_columns(pl.col(CALENDAR).cast(kind)))
        assert rows["symbol"].to_list() == ["B", "A", "C", "A"]
        assert rows["bar"].to_list() == [0, 144, 30, 162]
        assert rows["session_bars"].to_list() == [78, 288, 66, 288]
        assert rows.columns == ["symbol", "ts", CALENDAR, "session", "bar", "session_bars", "slot", "segment"]
        assert rows.dtypes[3:] == [pl.Date, pl.Int32, pl.Int32, pl.Int64, pl.Int32]


def test_place_of_no_rows_has_the_same_columns() -> None:
    empty, some = placed([]), placed(["2026-06-03T15:00"])
    assert empty.schema == some.schema
    assert empty.is_empty()


@pytest.mark.parametrize("clock", [NYSE, HONG_KONG, LATE])
def test_place_equals_a_walk_through_the_week(clock: Clock) -> None:
    walk = {}
    slot = 0
    for start, end in (
        segments(clock)
        .filter(pl.col("session").is_between(date(2026, 3, 2), date(2026, 3, 13)))
        .select("open", "close")
        .rows()
    ):
        while start < end:
            walk[start] = slot
            slot, start = slot + 1, start + timedelta(minutes=5)
    draw = random.Random(5)  # noqa: S311
    stamps = [
        utc("2026-03-01T20:00") + timedelta(minutes=draw.choice([1, 5]) * draw.randrange(3400)) for _ in range(500)
    ]
    rows = placed([stamp.replace(tzinfo=None).isoformat() for stamp in stamps], clock)
    zero = placed([min(walk).replace(tzinfo=None).isoformat()], clock)["slot"][0]
    assert [None if slot is None else slot - zero for slot in rows["slot"]] == [walk.get(stamp) for stamp in stamps]
    assert rows["slot"].null_count() not in (0, 500)


def test_stamps_of_another_age_are_refused() -> None:
    for stamp in ("1970-01-21T00:00", "2200-01-01T00:00"):
        with pytest.raises(CalendarError, match="unit, zone"):
            placed([stamp])


# --- grid, what comes next, what is finished -------------------------------------------------------------------------


# --- names -----------------------------------------------------------------------------------------------------------


def test_a_clock_and_its_text_are_the_same() -> None:
    for text, clock in (("XNYS", NYSE), ("XNYS+extended", LATE), ("24/7", CRYPTO)):
        assert str(clock) == text
        assert Clock.parse(text) == clock
    assert Clock("XHKG").zone == "Asia/Hong_Kong"


def test_an_unknown_calendar_is_refused_and_a_near_one_named() -> None:
    for name in ("XNSY", "xnys", "XNYS+late"):
        with pytest.raises(CalendarError) as caught:
            segments(Clock.parse(name))
        assert "XNYS" in caught.value.do
        assert name in caught.value.got


def test_a_failure_inside_the_calendar_library_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    import exchange_calendars

    def broken(name: str, **span: str) -> None:
        raise NotImplementedError("no such offset")

    monkeypatch.setattr(exchange_calendars, "get_calendar", broken)
    with pytest.raises(CalendarError, match="no such offset"):
        segments(Clock("XWAR"))


def test_an_unknown_zone_is_refused() -> None:
    assert str(zone_of("America/New_York")) == "America/New_York"
    for name in ("posixrules", "America/Newyork", "", "../etc/passwd"):
        with pytest.raises(CalendarError, match="IANA name"):
            zone_of(name)
