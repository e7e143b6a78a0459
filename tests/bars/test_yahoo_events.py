"""In: Yahoo's answers with splits, dividends, holes in the volume. Out: bars as traded, splits apart from them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars.delivery import SPLIT_SCHEMA, Delivery
from klinepred.bars.sources import yahoo as source
from klinepred.calendar import Clock
from tests.yahoo_server import FakeYahoo, Row, bars_of, chart, serve, split_at, yfinance_on

NOW = datetime(2026, 6, 30, 22, 0, tzinfo=UTC)
DAY = bars_of(datetime(2026, 6, 30, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC))


@pytest.fixture
def yahoo(tmp_path: Path) -> Iterator[FakeYahoo]:
    with serve() as server, yfinance_on(server, tmp_path):
        yield server


def ask(*symbols: str) -> list[Delivery]:
    return list(source.fetch(symbols, clock=Clock("XNYS"), start=None, end=None, now=NOW))


def test_splits_and_dividends_leave_prices_as_they_were_traded(yahoo: FakeYahoo) -> None:
    stamp = str(int(DAY[0][0].timestamp()))
    past = str(int(stamp) - 90 * 86_400)
    events = {
        "dividends": {
            stamp: {"amount": 0.5, "date": int(stamp)},
            past: {"amount": 0.5, "date": int(past)},
            str(int(stamp) - 3600): {"amount": 0.1, "date": int(stamp) - 3600},
        },
        "splits": split_at(DAY[0][0], 2.0, 1.0),
    }
    yahoo.answers["AAPX"] = chart("AAPX", DAY, events=events)
    (one,) = ask("AAPX")
    assert one.frame["close"].to_list() == pytest.approx([row[4] for row in DAY])
    assert one.frame["ts"].to_list() == [row[0] for row in DAY]
    assert one.splits is not None
    assert one.splits.schema == pl.Schema(SPLIT_SCHEMA)
    assert one.splits.rows() == [("AAPX", DAY[0][0], 2.0)]
    yahoo.answers["AAPX"] = chart("AAPX", DAY, events={"splits": split_at(DAY[0][0] - timedelta(days=90), 2.0, 1.0)})
    (one,) = ask("AAPX")
    assert one.frame.height == 78
    assert one.splits is None


def test_a_split_is_told_at_the_first_bar_of_its_day_and_two_of_one_day_multiply(yahoo: FakeYahoo) -> None:
    days = bars_of(datetime(2026, 6, 26, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC))
    opening = datetime(2026, 6, 29, 13, 30, tzinfo=UTC)
    events = {"splits": {**split_at(opening, 1.0, 10.0), **split_at(opening + timedelta(hours=1), 2.0, 1.0)}}
    yahoo.answers["AAPX"] = chart("AAPX", days, events=events)
    yahoo.answers["MSFX"] = chart("MSFX", days, events={"splits": split_at(opening - timedelta(hours=6), 4.0, 1.0)})
    yahoo.answers["NONE"] = chart("NONE", days, events={"splits": split_at(opening, 1.0, 1.0)})
    (one,) = ask("AAPX", "MSFX", "NONE")
    assert one.splits is not None
    assert one.splits.rows() == [("AAPX", opening, pytest.approx(0.2)), ("MSFX", opening, 4.0)]


def test_a_day_with_a_dividend_and_no_trade_gives_no_row(yahoo: FakeYahoo) -> None:
    """The row of an event must not become a bar, nor take the place of one."""
    days = bars_of(datetime(2026, 6, 26, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC))
    kept = [row for row in days if row[0].day != 29]
    ex_day = int(datetime(2026, 6, 29, 13, 30, tzinfo=UTC).timestamp())
    yahoo.answers["AAPX"] = chart("AAPX", kept, events={"dividends": {str(ex_day): {"amount": 0.5, "date": ex_day}}})
    (one,) = ask("AAPX")
    assert one.frame["ts"].to_list() == [row[0] for row in kept]
    assert one.frame["close"].to_list() == pytest.approx([row[4] for row in kept])
    assert one.splits is None


@pytest.mark.parametrize("missing", [[3], [0, 40, 77]])
def test_a_volume_that_is_missing_is_not_taken_for_zero(yahoo: FakeYahoo, missing: list[int]) -> None:
    rows = [(*row[:5], None if k in missing else row[5]) for k, row in enumerate(DAY)]
    rows[5] = (*rows[5][:5], 0)
    yahoo.answers["AAPX"] = chart("AAPX", rows)
    (one,) = ask("AAPX")
    assert [k for k, volume in enumerate(one.frame["volume"]) if volume is None] == missing
    assert one.frame["volume"][5] == 0.0
    assert one.frame["close"].null_count() == 0


def test_an_instrument_without_any_volume_keeps_its_bars_and_says_so(yahoo: FakeYahoo) -> None:
    yahoo.answers["EURX=X"] = chart("EURX=X", [(*row[:5], None) for row in DAY])
    (one,) = ask("EURX=X")
    assert one.frame["volume"].to_list() == [0.0] * 78
    assert one.remarks == ("Yahoo gives no volume of EURX=X at all: stored as 0",)


def test_bars_that_come_twice_with_different_values_are_said(yahoo: FakeYahoo) -> None:
    ts, *values, _ = DAY[10]
    other: Row = (ts, *values, 7)  # type: ignore[assignment]
    yahoo.answers["AAPX"] = chart("AAPX", [*DAY[:11], DAY[10], *DAY[11:20]])
    yahoo.answers["MSFX"] = chart("MSFX", [*DAY[:11], other, *DAY[11:20]])
    (one,) = ask("AAPX", "MSFX")
    assert one.remarks == ("Yahoo gave MSFX rows of one bar that differ, 1 of them: the first of each bar was taken",)
    assert one.frame.group_by("symbol", maintain_order=True).len()["len"].to_list() == [20, 20]
    assert one.frame.filter(pl.col("ts") == ts)["volume"].to_list() == [1010.0, 1010.0]
