"""In: answers in Yahoo's form, good and bad. Out: yfinance itself delivers the bars, or each failure has its name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars.delivery import Delivery
from klinepred.bars.sources import yahoo as source
from klinepred.calendar import Clock
from klinepred.schema import BAR_SCHEMA
from tests.yahoo_server import (
    FakeYahoo,
    Reply,
    bars_of,
    busy,
    chart,
    error,
    history,
    not_found,
    point_yfinance_at,
    serve,
)

XNYS = Clock("XNYS")
NOW = datetime(2026, 6, 30, 22, 0, tzinfo=UTC)
DAY = bars_of(datetime(2026, 6, 30, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC))


@pytest.fixture
def yahoo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeYahoo]:
    with serve() as server:
        point_yfinance_at(server, monkeypatch, tmp_path)
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
        (not_found(), "unknown-symbol", "knows no AAPX"),
        (Reply(404, "<html>nothing</html>"), "failed", "could not be used"),
        (error(422, "Unprocessable Entity", "5m data not available for startTime=1 and endTime=2. The requested range"
               " must be within the last 60 days."), "failed", "60 calendar days"),
        (Reply(200, '{"chart": {"result": [{"meta": {"symb'), "failed", "could not be used"),
        (Reply(200, "[]"), "failed", "AAPX"),
        (Reply(200, '{"chart": {"result": [{"meta": {}}], "error": null}}'), "failed", "form of a chart"),
        (Reply(502, "Bad Gateway"), "failed", "could not be used"),
        (Reply(200, "Will be right back"), "failed", "DOWN"),
        (chart("AAPX", []), "failed", "without a single bar"),
        (chart("AAPX", DAY, named="MSFX"), "failed", "bars of MSFX"),
        (error(500, "Internal", "something"), "failed", "it said: something"),
    ],
)  # fmt: skip
def test_every_bad_answer_is_a_named_failure_without_bars(
    yahoo: FakeYahoo, caplog: pytest.LogCaptureFixture, reply: Reply, status: str, words: str
) -> None:
    yahoo.answers["AAPX"] = reply
    (one,) = ask("AAPX")
    assert one.frame.is_empty()
    assert one.failures["AAPX"].status == status
    assert words in one.failures["AAPX"].message
    assert "possibly" not in one.failures["AAPX"].message
    assert not [record for record in caplog.records if record.name.startswith("yfinance")]


def test_rows_without_prices_are_passed_on_as_nulls(yahoo: FakeYahoo) -> None:
    rows = [*DAY[:3], (DAY[3][0], None, None, None, None, None), *DAY[4:]]
    yahoo.answers["AAPX"] = chart("AAPX", rows)
    (one,) = ask("AAPX")
    assert one.frame.height == 78
    assert one.frame.row(3)[2:6] == (None, None, None, None)
    assert one.frame["close"].is_nan().any() is False


def test_a_rate_limit_that_passes_is_waited_out(yahoo: FakeYahoo, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(source, "_sleep", waits.append)
    # yfinance asks twice before it gives a 429 up
    yahoo.answers["AAPX"] = [busy(), busy(), busy(), busy(), chart("AAPX", DAY)]
    (one,) = ask("AAPX")
    assert one.frame.height == 78
    assert len(waits) == 2
    assert 2.0 <= waits[0] <= 3.0
    assert 4.0 <= waits[1] <= 6.0


def test_two_of_five_rate_limited_leaves_three_delivered_and_bounds_the_waits(
    yahoo: FakeYahoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 05."""
    waits: list[float] = []
    monkeypatch.setattr(source, "_sleep", waits.append)
    for name in ("A", "B", "C", "D", "E"):
        yahoo.answers[name] = busy() if name in ("B", "D") else chart(name, DAY)
    got = {delivery.source and symbol: delivery for symbol, delivery in zip("ABCDE", ask(*"ABCDE"), strict=True)}
    assert [name for name, one in got.items() if one.frame.height == 78] == ["A", "C", "E"]
    assert {name: one.failures[name].status for name, one in got.items() if one.failures} == {
        "B": "rate-limited",
        "D": "rate-limited",
    }
    assert "rate limit" in got["B"].failures["B"].message
    assert sum(waits) <= 1.5 * sum(source.BUSY_WAITS_S)
    assert sum(symbol == "D" for symbol, _ in yahoo.asked) == 2  # one try of ours: the waits were used up at B


def test_a_ban_stops_the_asking(yahoo: FakeYahoo) -> None:
    names = [f"S{i}" for i in range(20)]
    for name in names:
        yahoo.answers[name] = busy()
    got = ask(*names)
    assert {one.failures[name].status for name, one in zip(names, got, strict=True)} == {"rate-limited"}
    assert {symbol for symbol, _ in yahoo.asked} == {"S0", "S1", "S2"}


def test_a_broken_answer_is_asked_for_again(yahoo: FakeYahoo) -> None:
    yahoo.answers["AAPX"] = [Reply(200, "{"), chart("AAPX", DAY)]
    (one,) = ask("AAPX")
    assert one.frame.height == 78


def test_a_slow_server_is_a_failure_in_bounded_time(yahoo: FakeYahoo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "TIMEOUT_S", 0.3)
    yahoo.answers["AAPX"] = Reply(200, "", wait_s=5.0)
    (one,) = ask("AAPX")
    assert one.failures["AAPX"].status == "failed"
    assert len(yahoo.asked) == 3


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


def test_splits_and_dividends_leave_prices_as_they_were_traded(yahoo: FakeYahoo) -> None:
    stamp = str(int(DAY[0][0].timestamp()))
    events = {
        "dividends": {stamp: {"amount": 0.5, "date": int(stamp)}},
        "splits": {stamp: {"date": int(stamp), "numerator": 2.0, "denominator": 1.0, "splitRatio": "2:1"}},
    }
    yahoo.answers["AAPX"] = chart("AAPX", DAY, events=events)
    (one,) = ask("AAPX")
    assert one.frame["close"].to_list() == pytest.approx([row[4] for row in DAY])


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
