"""In: first and last sessions of symbols. Out: who ended, who took another name, who came later, who only survived."""

from __future__ import annotations

import math
from datetime import date, timedelta

import polars as pl
import pytest

from klinepred.bars.hindsight import ENDS_A_YEAR, SURVIVORS, caution, judge_universe
from klinepred.bars.spans import find_renames, late_starters, mark_ended, newest_sessions, years
from tests.bars.made import utc

FIRST, LAST = date(2021, 6, 1), date(2022, 6, 15)  # a Tuesday, a Wednesday


def _spans(*lines: tuple[str, date, date], calendar: str = "XNYS") -> pl.DataFrame:
    table = [(symbol, calendar, first, last) for symbol, first, last in lines]
    names = {"symbol": pl.String, "calendar": pl.String, "first_session": pl.Date, "last_session": pl.Date}
    return pl.DataFrame(table, schema=names, orient="row")


def _many(count: int, first: date = FIRST, last: date = LAST) -> list[tuple[str, date, date]]:
    return [(f"S{number:03d}", first, last) for number in range(count)]


@pytest.mark.parametrize(("last", "ended"), [(date(2022, 6, 9), None), (date(2022, 6, 8), date(2022, 6, 8))])
def test_a_symbol_has_ended_when_others_are_five_sessions_further(last: date, ended: date | None) -> None:
    # sessions after the 8th: 9, 10, 13, 14, 15 June
    table = mark_ended(_spans(("FB", FIRST, last), ("SPY", FIRST, LAST)))
    assert table["ended"].to_list() == [ended, None]


def test_another_calendar_ends_nothing_and_holidays_are_no_sessions() -> None:
    coins = _spans(("BTC", FIRST, LAST), ("LUNA", FIRST, LAST - timedelta(days=5)), calendar="24/7")
    table = mark_ended(pl.concat([_spans(("SPY", FIRST, date(2022, 5, 27))), coins]))
    assert table["ended"].to_list() == [None, None, date(2022, 6, 10)]
    near = _spans(("A", FIRST, date(2022, 5, 26)), ("B", FIRST, date(2022, 6, 2)))  # Memorial Day on 30 May
    assert mark_ended(near)["ended"].to_list() == [None, None]


def test_the_newest_session_may_come_from_symbols_not_asked_for_but_not_from_after_now() -> None:
    store = _spans(("FB", FIRST, date(2022, 6, 8)), ("SPY", FIRST, LAST))
    newest = newest_sessions(store)
    assert newest == {"XNYS": LAST}
    asked = store.filter(pl.col("symbol") == "FB")
    assert mark_ended(asked, newest)["ended"].to_list() == [date(2022, 6, 8)]
    assert mark_ended(asked, newest_sessions(store, now=utc("2022-06-09T15:00")))["ended"].to_list() == [None]


def _priced(*lines: tuple[str, date, date, float, float]) -> pl.DataFrame:
    prices = pl.DataFrame([line[3:] for line in lines], schema=["first_open", "last_close"], orient="row")
    return _spans(*((line[0], line[1], line[2]) for line in lines)).hstack(prices)


def test_one_name_ends_and_the_next_session_another_begins_at_the_same_price_a_rename() -> None:
    table = _priced(
        ("FB", FIRST, date(2022, 6, 8), 330.0, 196.64),
        ("META", date(2022, 6, 9), LAST, 194.28, 170.0),
        ("NEW", date(2022, 6, 9), LAST, 20.0, 21.0),  # the same day at another price
        ("LATE", date(2022, 6, 10), LAST, 196.0, 170.0),  # a session too late
        ("SPY", FIRST, LAST, 420.0, 196.0),
    )
    found = find_renames(table)
    assert found.select("symbol", "renamed_to", "ended", "began").rows() == [
        ("FB", "META", date(2022, 6, 8), date(2022, 6, 9))
    ]
    assert find_renames(table.filter(pl.col("symbol") != "META")).is_empty()


def test_a_name_that_goes_on_over_a_weekend_is_found_and_the_nearest_price_wins() -> None:
    table = _priced(
        ("OLD", FIRST, date(2022, 6, 10), 50.0, 100.0),
        ("NEAR", date(2022, 6, 13), LAST, 100.5, 99.0),
        ("FAR", date(2022, 6, 13), LAST, 104.0, 99.0),
    )
    assert find_renames(table)["renamed_to"].to_list() == ["NEAR"]


def test_a_universe_exchanged_at_once_tells_nothing_of_names() -> None:
    old = [(f"O{number}", FIRST, date(2022, 6, 10), 1.0, 100.0) for number in range(6)]
    new = [(f"N{number}", date(2022, 6, 13), LAST, 100.0, 1.0) for number in range(6)]
    assert find_renames(_priced(*old, *new)).is_empty()
    assert find_renames(_priced(*old, *new[:5])).height == 1  # at one price each name is taken once


def test_late_starters_are_measured_from_where_a_tenth_had_begun() -> None:
    lines = [*_many(20, first=date(2021, 9, 1)), ("OLD1", date(2010, 1, 4), LAST), ("IPO", date(2022, 1, 3), LAST)]
    table = late_starters(_spans(*lines))  # of 22 symbols the third begins on 1 September
    assert table.select("symbol", "begin").rows() == [("IPO", date(2021, 9, 1))]
    few = _spans(("A", date(2021, 6, 1), LAST), ("B", date(2021, 6, 8), LAST), ("C", date(2021, 6, 9), LAST))
    assert late_starters(few)["symbol"].to_list() == ["C"]  # sessions after the 1st: 2, 3, 4, 7, 8 June, then 9


def test_no_ends_in_61_symbol_years_are_no_chance() -> None:
    assert pytest.approx(0.61) == (1.0 - (1.0 - math.exp(-ENDS_A_YEAR))) ** 10
    year = timedelta(days=365)  # 0.99932 years
    for count, found in ((60, False), (61, True)):  # exp(-59.96 * 0.0494) = 0.0517, exp(-60.96 * 0.0494) = 0.0492
        lines = judge_universe(_spans(*_many(count, first=LAST - year)))
        assert bool(lines) == found
    (line,) = judge_universe(_spans(*_many(101)))
    assert line.startswith("all of the 101 symbols trade to the end")


def test_a_universe_with_the_usual_number_of_ends_is_not_one_of_survivors() -> None:
    living = _many(300)  # 311 symbol-years: 15 ends are to be expected, 9 or more happen with 95 %
    gone = [(f"G{number}", FIRST, date(2022, 3, 1)) for number in range(15)]
    assert judge_universe(_spans(*living, *gone)) == ()
    (line,) = judge_universe(_spans(*living, *gone[:3]))
    assert line.startswith("all but 3 of the 303 symbols")


def test_symbols_chosen_later_are_named() -> None:
    (line,) = judge_universe(_spans(*_many(8), ("RIVN", date(2021, 11, 10), LAST)))
    assert "1 of the 9 symbols" in line
    assert "RIVN 2021-11-10" in line
    many = [(f"IPO{number}", date(2021, 11, 10), LAST) for number in range(12)]
    (line,) = judge_universe(_spans(*_many(20), *many))
    assert "and 4 more" in line


def test_what_spans_cannot_tell_is_said_in_general() -> None:
    assert caution(_spans(*_many(5))) == (SURVIVORS,)
    assert caution(_spans()) == ()
    assert len(caution(_spans(*_many(101)))) == 1
    gone = [(f"G{number}", FIRST, date(2022, 3, 1)) for number in range(15)]
    assert caution(_spans(*_many(300), *gone)) == ()


def test_symbol_years_add_up() -> None:
    assert years(_spans(*_many(2, first=date(2021, 6, 15)))) == pytest.approx(2 * 365 / 365.25)
    assert years(_spans()) == 0.0
