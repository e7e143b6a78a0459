"""In: answers in Yahoo's form, good and bad. Out: yfinance itself delivers the bars, or each failure has its name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars.delivery import Delivery
from klinepred.bars.sources import batch
from klinepred.bars.sources import yahoo as source
from klinepred.calendar import Clock
from klinepred.schema import BAR_SCHEMA
from tests.yahoo_server import (
    FakeYahoo,
    Reply,
    bars_of,
    chart,
    error,
    history,
    not_found,
    serve,
    yfinance_on,
)

XNYS = Clock("XNYS")
NOW = datetime(2026, 6, 30, 22, 0, tzinfo=UTC)
DAY = bars_of(datetime(2026, 6, 30, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC))


@pytest.fixture
def yahoo(tmp_path: Path) -> Iterator[FakeYahoo]:
    with serve() as server, yfinance_on(server, tmp_path):
        yield server


def ask(
    *symbols: str, clock: Clock = XNYS, start: date | None = None, end: date | None = None, now: datetime = NOW
) -> list[Delivery]:
    return list(source.fetch(symbols, clock=clock, start=start, end=end, now=now))


def test_bars_come_by_name_in_utc_with_the_version_of_the_client(yahoo: FakeYahoo) -> None:
    yahoo.answers["AAPX"] = history("AAPX", DAY)
    (one,) = ask("AAPX")
    assert one.frame.schema == pl.Schema(BAR_SCHEMA)
    assert one.frame.height == 78
    assert one.failures == {}
    assert one.source.startswith("yahoo (yfinance 1.")
    first = one.frame.row(0, named=True)
    assert first["ts"] == datetime(2026, 6, 30, 13, 30, tzinfo=UTC)
    assert (first["open"], first["high"], first["low"], first["close"]) == pytest.approx((100.0, 100.05, 99.95, 100.01))
    assert first["volume"] == 1000.0
    assert one.frame["symbol"].unique().to_list() == ["AAPX"]


def test_the_request_is_for_whole_days_inside_the_60_calendar_days(yahoo: FakeYahoo) -> None:
    """Case 02: 90 days asked for on 30 June: taken from 2 May, both dates said, never 'delisted'."""
    yahoo.answers["AAPX"] = history("AAPX", DAY)
    (one,) = ask("AAPX", start=date(2026, 4, 1))
    (_, query) = yahoo.asked[-1]
    assert datetime.fromtimestamp(int(query["period1"]), UTC) == datetime(2026, 5, 2, 4, 0, tzinfo=UTC)
    assert datetime.fromtimestamp(int(query["period2"]), UTC) == NOW
    assert query["interval"] == "5m"
    assert query["includePrePost"].lower() == "false"
    assert len(one.remarks) == 1
    assert "2026-04-01" in one.remarks[0]
    assert "2026-05-02" in one.remarks[0]
    assert "delisted" not in one.remarks[0]
    (two,) = ask("AAPX")
    assert two.remarks == ()
    assert yahoo.asked[-1][1]["period1"] == query["period1"]


def test_a_range_wholly_before_the_wall_names_the_limit_without_asking(yahoo: FakeYahoo) -> None:
    (one,) = ask("AAPX", start=date(2026, 1, 5), end=date(2026, 2, 1))
    assert yahoo.asked == []
    assert one.failures["AAPX"].status == "failed"
    assert "60 calendar days" in one.failures["AAPX"].message
    assert "delisted" not in one.failures["AAPX"].message


@pytest.mark.parametrize(
    ("reply", "status", "words"),
    [
        (not_found(), "unknown-symbol", "knows no symbol AAPX"),
        (Reply(404, "<html>nothing</html>"), "failed", "could not be used"),
        (error(422, "Unprocessable Entity", "5m data not available for startTime=1 and endTime=2. The requested range"
               " must be within the last 60 days."), "failed", "60 calendar days"),
        (Reply(200, '{"chart": {"result": [{"meta": {"symb'), "failed", "could not be used"),
        (Reply(200, "[]"), "failed", "form of a chart"),
        (Reply(200, '{"chart": {"result": [{"meta": {}}], "error": null}}'), "failed", "form of a chart"),
        (Reply(502, "Bad Gateway"), "failed", "could not be used"),
        (Reply(200, "Will be right back"), "failed", "DOWN"),
        (chart("AAPX", []), "failed", "not a single bar"),
        (chart("AAPX", DAY, named="MSFX"), "failed", "of MSFX when asked for AAPX"),
        (Reply(404, "<html><title>404 Not Found</title></html>"), "unknown-symbol", "no page of AAPX (HTTP 404)"),
        (chart("AAPX", DAY[::12], spacing="1h"), "failed", "of 1h bars when asked for 5m"),
        (chart("AAPX", [(datetime(1971, 1, 4, 14, 30, tzinfo=UTC), 1.0, 1.0, 1.0, 1.0, 1), *DAY]), "failed",
         "of 1971-01-04 to 2026-06-30 when asked for"),
        (chart("AAPX", [(DAY[0][0], 1.0, 1.0, 1.0, 1.0, 10**20), *DAY[1:]]), "failed", "form of a chart"),
        (error(500, "Internal", "something"), "failed", "it said: something"),
        (error(400, "Bad Request", "Data doesn't exist for startDate = 1, endDate = 2"), "failed", "not a single bar"),
        (Reply(401, '{"finance": {"result": null, "error": {"code": "Unauthorized", "description": "Invalid Crumb"}}}'),
         "failed", "form of a chart"),
        (Reply(999, "denied"), "failed", "could not be used"),
    ],
)  # fmt: skip
def test_every_bad_answer_is_a_named_failure_without_bars(
    yahoo: FakeYahoo,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    reply: Reply,
    status: str,
    words: str,
) -> None:
    yahoo.answers["AAPX"] = reply
    (one,) = ask("AAPX")
    assert one.frame.is_empty()
    assert one.failures["AAPX"].status == status
    assert words in one.failures["AAPX"].message
    assert "possibly" not in one.failures["AAPX"].message
    assert "delisted" not in one.failures["AAPX"].message
    assert not [record for record in caplog.records if record.name.startswith("yfinance")]
    assert capfd.readouterr() == ("", "")


def test_rows_without_prices_are_passed_on_as_nulls(yahoo: FakeYahoo) -> None:
    rows = [*DAY[:3], (DAY[3][0], None, None, None, None, None), *DAY[4:]]
    yahoo.answers["AAPX"] = chart("AAPX", rows)
    (one,) = ask("AAPX")
    assert one.frame.height == 78
    assert one.frame.row(3)[2:6] == (None, None, None, None)
    assert one.frame["close"].is_nan().any() is False


@pytest.mark.parametrize(
    "name", ["../evil", "BTC/USDT", "A?x=1", "A#", "A%2e", "", " ", "A B", "A\0", "ÄÖ", "A" * 40, "US0378331005"]
)
def test_what_cannot_be_a_symbol_of_yahoo_is_never_part_of_an_address(yahoo: FakeYahoo, name: str) -> None:
    (one,) = ask(name)
    assert one.failures[name].status == "unknown-symbol"
    assert yahoo.visited == []


@pytest.mark.parametrize("name", ["^GSPC", "EURUSD=X", "M&M.NS", "BRK-B", "005930.KS", "NA", "TRUE"])
def test_symbols_are_kept_letter_for_letter(yahoo: FakeYahoo, name: str) -> None:
    yahoo.answers[name] = chart(name, DAY)
    (one,) = ask(name)
    assert one.frame["symbol"].unique().to_list() == [name]
    assert one.remarks == ()


def test_a_symbol_in_small_letters_is_the_one_yahoo_knows(yahoo: FakeYahoo) -> None:
    yahoo.answers["BRK-B"] = chart("BRK-B", DAY)
    (one,) = ask("brk-b", "BRK-B", "Brk-b", "gone")
    assert one.frame["symbol"].unique().to_list() == ["BRK-B"]
    assert one.frame.height == 78
    assert {symbol for symbol, _ in yahoo.asked} == {"BRK-B", "GONE"}
    assert {name: failure.status for name, failure in one.failures.items()} == {"GONE": "unknown-symbol"}
    assert [line.partition(" at Yahoo")[0] for line in one.remarks] == [
        "brk-b is BRK-B",
        "Brk-b is BRK-B",
        "gone is GONE",
    ]


def test_many_symbols_come_in_few_deliveries_in_their_order(yahoo: FakeYahoo, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"S{k}" for k in range(70)]
    for name in names:
        yahoo.answers[name] = chart(name, DAY) if name != "S40" else not_found()
    got = ask(*names)
    sizes = [one.frame["symbol"].n_unique() + len(one.failures) for one in got]
    assert sizes == [32, 32, 6]
    assert [list(one.failures) for one in got] == [[], ["S40"], []]
    order = [name for one in got for name in one.frame["symbol"].unique(maintain_order=True)]
    assert order == [name for name in names if name != "S40"]
    monkeypatch.setattr(batch, "SECONDS", 0.0)
    assert len(ask(*names[:8])) == 2  # four at a time


def test_a_symbol_named_twice_is_asked_for_once(yahoo: FakeYahoo) -> None:
    yahoo.answers["AAPX"] = chart("AAPX", DAY)
    assert len(ask("AAPX", "AAPX")) == 1


def test_no_bar_where_the_market_was_closed_is_no_failure(yahoo: FakeYahoo) -> None:
    yahoo.answers["AAPX"] = chart("AAPX", [])
    (weekend,) = ask("AAPX", start=date(2026, 6, 27), end=date(2026, 6, 28))
    (early,) = ask("AAPX", start=date(2026, 6, 30), now=datetime(2026, 6, 30, 13, 34, 59, tzinfo=UTC))
    (late,) = ask("AAPX", start=date(2026, 6, 30), now=datetime(2026, 6, 30, 13, 35, tzinfo=UTC))
    assert [one.failures["AAPX"].status for one in (weekend, early, late)] == ["unchanged", "unchanged", "failed"]


def test_a_start_after_now_is_said_without_asking(yahoo: FakeYahoo) -> None:
    (one,) = ask("AAPX", start=date(2026, 7, 2))
    assert one.failures["AAPX"].status == "failed"
    assert "lies after now" in one.failures["AAPX"].message
    assert yahoo.visited == []


def test_the_days_of_the_calendar_s_zone_are_asked_for(yahoo: FakeYahoo) -> None:
    yahoo.answers["7203.T"] = chart("7203.T", DAY, zone="Asia/Tokyo", calendar="XTKS", currency="JPY")
    ask("7203.T", clock=Clock("XTKS"), start=date(2026, 6, 29), end=date(2026, 6, 29))
    (_, query) = yahoo.asked[-1]
    spots = [datetime.fromtimestamp(int(query[name]), UTC) for name in ("period1", "period2")]
    assert spots == [datetime(2026, 6, 28, 15, tzinfo=UTC), datetime(2026, 6, 29, 15, tzinfo=UTC)]


def test_the_bar_still_open_is_passed_on(yahoo: FakeYahoo) -> None:
    """As Yahoo gives it: a row of the running bar, and one of the last trade with odd seconds; one bar."""
    live = (datetime(2026, 6, 30, 13, 47, 12, tzinfo=UTC), 100.02, 103.0, 100.02, 103.0, 7)
    yahoo.answers["AAPX"] = chart("AAPX", [*DAY[:4], live])
    (one,) = ask("AAPX", now=datetime(2026, 6, 30, 13, 47, 15, tzinfo=UTC))
    assert one.frame["ts"].to_list() == [row[0] for row in DAY[:4]]
    assert one.frame["close"][-1] == pytest.approx(103.0)


def test_the_half_day_ends_where_yahoo_says(yahoo: FakeYahoo) -> None:
    rows = bars_of(datetime(2026, 11, 27, tzinfo=UTC), datetime(2026, 11, 28, tzinfo=UTC))
    extra = (datetime(2026, 11, 27, 18, 0, tzinfo=UTC), 310.0, 310.0, 310.0, 310.0, 1_250_000)
    yahoo.answers["AAPX"] = chart("AAPX", [*rows, extra])
    (one,) = ask("AAPX", now=datetime(2026, 11, 27, 23, tzinfo=UTC))
    assert one.frame.height == 42


def test_extended_hours_are_asked_for_by_the_clock(yahoo: FakeYahoo) -> None:
    early = (datetime(2026, 6, 30, 8, 0, tzinfo=UTC), 99.0, 99.0, 99.0, 99.0, 0)
    rows = [early, *DAY]
    yahoo.answers["AAPX"] = chart("AAPX", rows)
    (regular,) = ask("AAPX")
    assert regular.frame.height == 78
    pre = [{"timezone": "EST", "start": int(early[0].timestamp()), "end": int(DAY[0][0].timestamp()), "gmtoffset": 0}]
    import json

    table = json.loads(chart("AAPX", rows).body)
    regular_spans = table["chart"]["result"][0]["meta"]["tradingPeriods"]
    table["chart"]["result"][0]["meta"]["tradingPeriods"] = {
        "pre": [pre] * len(regular_spans),
        "regular": regular_spans,
        "post": [pre] * len(regular_spans),
    }
    yahoo.answers["AAPX"] = Reply(200, json.dumps(table))
    (extended,) = ask("AAPX", clock=Clock("XNYS", "extended"))
    assert yahoo.asked[-1][1]["includePrePost"].lower() == "true"
    assert extended.frame.height == 79


def test_pence_are_kept_and_said(yahoo: FakeYahoo) -> None:
    rows = bars_of(datetime(2026, 6, 30, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC), calendar="XLON", price=4000.0)
    yahoo.answers["BPX.L"] = chart("BPX.L", rows, zone="Europe/London", calendar="XLON", currency="GBp")
    (one,) = ask("BPX.L", clock=Clock("XLON"))
    assert one.frame["close"][0] == pytest.approx(4000.01)
    assert "GBp" in one.remarks[0]


def test_round_the_clock_and_daylight_saving_weeks_keep_every_bar(yahoo: FakeYahoo) -> None:
    low, high = datetime(2026, 6, 27, tzinfo=UTC), datetime(2026, 6, 30, tzinfo=UTC)
    rows = bars_of(low, high, calendar="24/7")
    yahoo.answers["BTX-USD"] = chart("BTX-USD", rows, zone="UTC", calendar="24/7")
    (one,) = ask("BTX-USD", clock=Clock("24/7"))
    assert one.frame["ts"].to_list() == [row[0] for row in rows]
    spring = bars_of(datetime(2026, 3, 6, tzinfo=UTC), datetime(2026, 3, 10, tzinfo=UTC))
    yahoo.answers["DSTX"] = chart("DSTX", spring)
    (two,) = ask("DSTX", now=datetime(2026, 3, 10, tzinfo=UTC))
    assert two.frame["ts"].to_list() == [row[0] for row in spring]
    opens = (
        two.frame.filter(pl.col("ts").dt.minute() == 30).group_by(day=pl.col("ts").dt.date()).agg(pl.col("ts").min())
    )
    assert sorted(opens["ts"].dt.hour().to_list()) == [13, 14]


def test_the_client_s_settings_are_as_before_afterwards(yahoo: FakeYahoo) -> None:
    import logging

    from yfinance.config import YfConfig

    before = (YfConfig.debug.hide_exceptions, logging.getLogger("yfinance").level)
    yahoo.answers["AAPX"] = not_found()
    ask("AAPX")
    assert (YfConfig.debug.hide_exceptions, logging.getLogger("yfinance").level) == before
