"""In: rows of one minute and of other spacings. Out: the 5-minute bars they make, or a refusal by its name."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
import pytest

from klinepred.bars.clean import CONFLICT, OUTSIDE
from klinepred.bars.sources.spacing import to_five_minutes
from tests.bars.made import ROUND, XNYS, flat, rows, utc


def _minutes(step: int, count: int, *, symbol: str = "A", start: str = "2026-06-01T13:30:00") -> pl.DataFrame:
    """Flat rows `step` minutes apart: price 10.00, 10.01, …; volume 1, 2, …"""
    stamps = [datetime.fromisoformat(start) + timedelta(minutes=step * number) for number in range(count)]
    return rows(*(flat(symbol, stamp.isoformat(), 10.0 + 0.01 * spot, 1.0 + spot) for spot, stamp in enumerate(stamps)))


def test_minutes_are_added_up_from_the_open_of_the_session() -> None:
    got = to_five_minutes(_minutes(1, 12), clock=XNYS, ends=False)
    assert got.frame.select("ts", "open", "high", "low", "close", "volume").rows() == [
        (utc("2026-06-01T13:30"), 10.0, 10.04, 10.0, 10.04, 15.0),
        (utc("2026-06-01T13:35"), 10.05, 10.09, 10.05, 10.09, 40.0),
        (utc("2026-06-01T13:40"), 10.1, 10.11, 10.1, 10.11, 23.0),
    ]
    assert any("2 of 5" in line for line in got.remarks)


def test_minutes_stamped_by_their_ends_make_the_same_bars() -> None:
    opens = to_five_minutes(_minutes(1, 20), clock=XNYS, ends=False).frame
    ends = to_five_minutes(_minutes(1, 20, start="2026-06-01T13:31:00"), clock=XNYS, ends=True).frame
    assert ends.equals(opens)


def test_repeated_minutes_count_once_and_bad_ones_are_set_aside() -> None:
    good = _minutes(1, 10)
    torn = good.slice(3, 1).with_columns(close=pl.col("close") + 1.0, high=pl.col("high") + 1.0)
    late = rows(flat("A", "2026-06-01T20:00:00"))
    got = to_five_minutes(pl.concat([good, good.head(2), torn, late]), clock=XNYS, ends=False)
    assert got.frame["volume"].to_list() == [1.0 + 2.0 + 3.0 + 5.0, 40.0]
    assert got.rejects.group_by("reason").len().sort("reason").rows() == sorted([(CONFLICT, 2), (OUTSIDE, 1)])


@pytest.mark.parametrize(("step", "words"), [(10, "10-minute"), (60, "1-hour")])
def test_spacings_that_make_no_five_minutes_are_refused_by_name(step: int, words: str) -> None:
    got = to_five_minutes(_minutes(step, 30), clock=ROUND, ends=False)
    assert got.frame.is_empty()
    assert words in got.failures["A"].message


def test_each_symbol_has_its_own_spacing() -> None:
    frame = pl.concat([_minutes(1, 10, symbol="A"), _minutes(5, 4, symbol="B"), _minutes(60, 4, symbol="C")])
    got = to_five_minutes(frame, clock=XNYS, ends=False)
    assert got.frame.group_by("symbol").len().sort("symbol").rows() == [("A", 2), ("B", 4)]
    assert list(got.failures) == ["C"]


def test_a_few_rows_with_gaps_go_with_the_five_minutes_of_the_others() -> None:
    frame = pl.concat([_minutes(5, 40, symbol="A"), _minutes(10, 2, symbol="B")])
    assert not to_five_minutes(frame, clock=XNYS, ends=False).failures
