"""In: each kind of source, on this machine. Out: follow takes in what is new through the code of ingest."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

import klinepred as kp
from klinepred.bars.store import scan_bars
from klinepred.errors import UsageError
from klinepred.live.feed import feed_of
from klinepred.schema import BAR
from klinepred.settings import DataSettings, SimulateSettings
from tests import binance_server, yahoo_server

MONDAY = datetime(2026, 6, 29, 13, 30, tzinfo=UTC)


def count(space: kp.Workspace) -> dict[str, int]:
    return dict(scan_bars(space).group_by("symbol").len().sort("symbol").collect().iter_rows())


def test_yahoo_is_asked_for_the_last_day_alone(tmp_path: Path) -> None:
    space = kp.Workspace(tmp_path / "space")
    data = DataSettings(source="yahoo", symbols=("AAA", "BBB"))
    rows = yahoo_server.bars_of(datetime(2026, 6, 22, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC))
    with yahoo_server.serve() as server, yahoo_server.yfinance_on(server, tmp_path / "cache"):
        for name in data.symbols:
            server.answers[name] = yahoo_server.history(name, rows)
        kp.ingest(data, space, now=MONDAY)
        assert count(space) == {"AAA": 390, "BBB": 390}
        feed = feed_of(data, space, ["AAA", "BBB"], now=MONDAY)
        server.asked.clear()
        report = feed(MONDAY + BAR)
        assert [(row.symbol, row.new) for row in report.symbols] == [("AAA", 1), ("BBB", 1)]
        first = {datetime.fromtimestamp(int(query["period1"]), UTC).date() for _, query in server.asked}
        assert first == {date(2026, 6, 25)}  # a day before the last stored bar
        # one of them cannot be had: the other comes, and both when it can again
        server.answers["BBB"] = yahoo_server.error(500, "Internal", "later")
        report = feed(MONDAY + 2 * BAR)
        assert {row.symbol: row.status for row in report.symbols} == {"AAA": "ok", "BBB": "failed"}
        server.answers["BBB"] = yahoo_server.history("BBB", rows)
        feed(MONDAY + 4 * BAR)
    assert count(space) == {"AAA": 394, "BBB": 394}


def test_an_exchange_is_asked_for_what_is_new(tmp_path: Path) -> None:
    space = kp.Workspace(tmp_path / "space")
    start = datetime(2026, 6, 1, tzinfo=UTC)
    data = DataSettings(
        source="exchange", exchange="binance", symbols=("BTC/USDT",), calendar="24/7", start=start.date()
    )
    with binance_server.serve() as server, binance_server.ccxt_on(server):
        server.klines["BTCUSDT"] = binance_server.klines(start, 400)
        kp.ingest(data, space, now=start + 300 * BAR)
        feed = feed_of(data, space, ["BTC/USDT"], now=start + 300 * BAR)
        report = feed(start + 301 * BAR)
        assert [row.new for row in report.symbols] == [1]
        assert feed(start + 301 * BAR).symbols[0].new == 0
        feed(start + 310 * BAR)
    assert count(space) == {"BTC/USDT": 310}


def test_a_file_that_grows_is_read_again(tmp_path: Path) -> None:
    space = kp.Workspace(tmp_path / "space")
    file = tmp_path / "AAA.csv"
    data = DataSettings(source="files", paths=(str(file),))
    lines = ["ts,open,high,low,close,volume"]
    lines += [
        f"{ts:%Y-%m-%dT%H:%M:%SZ},{o},{h},{low},{c},{v}"
        for ts, o, h, low, c, v in yahoo_server.bars_of(
            datetime(2026, 6, 29, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC)
        )
    ]
    file.write_text("\n".join(lines[:11]) + "\n")
    kp.ingest(data, space, now=MONDAY + 10 * BAR)
    feed = feed_of(data, space, ["AAA"], now=MONDAY)
    file.write_text("\n".join(lines[:13]) + "\n")
    assert feed(MONDAY + 12 * BAR).symbols[0].new == 2
    file.unlink()
    with pytest.raises(UsageError):
        feed(MONDAY + 13 * BAR)
    assert count(space) == {"AAA": 12}


def test_files_without_a_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"(?s)--follow with files.*data\.paths"):
        feed_of(DataSettings(source="files"), kp.Workspace(tmp_path), ["AAA"], now=MONDAY)


def test_the_simulated_market_comes_in_as_it_closes(tmp_path: Path) -> None:
    space = kp.Workspace(tmp_path / "space")
    settings = SimulateSettings(symbols=3, start=date(2026, 6, 22), end=date(2026, 6, 29))
    data = DataSettings(source="simulate", simulate=settings)
    kp.ingest(data, space, now=MONDAY)
    feed = feed_of(data, space, ["SIM001"], now=MONDAY)
    assert feed(MONDAY).symbols == ()
    assert [row.new for row in feed(MONDAY + 2 * BAR).symbols] == [2, 2, 2]
    assert feed(MONDAY + 2 * BAR).symbols == ()
    whole = kp.Workspace(tmp_path / "whole")
    feed(MONDAY + timedelta(hours=8))
    kp.ingest(data, whole, now=MONDAY + timedelta(hours=8))
    assert scan_bars(space).collect().equals(scan_bars(whole).collect())


def test_a_simulated_market_that_has_ended_is_refused(tmp_path: Path) -> None:
    settings = SimulateSettings(symbols=3, start=date(2026, 6, 22), end=date(2026, 6, 26))
    with pytest.raises(UsageError, match=r"(?s)simulated market.*2026-06-26.*--until"):
        feed_of(DataSettings(source="simulate", simulate=settings), kp.Workspace(tmp_path), ["SIM001"], now=MONDAY)


def test_an_exchange_that_is_down_is_an_error_and_the_feed_goes_on_afterwards(tmp_path: Path) -> None:
    space = kp.Workspace(tmp_path / "space")
    data = DataSettings(source="exchange", exchange="binance", symbols=("BTC/USDT",), calendar="24/7")
    with binance_server.serve() as server, binance_server.ccxt_on(server):
        feed = feed_of(data, space, ["BTC/USDT"], now=MONDAY)
        report = feed(MONDAY + BAR)
        assert [row.status for row in report.symbols] == ["failed"]
        server.klines["BTCUSDT"] = binance_server.klines(MONDAY, 10)
        feed(MONDAY + 3 * BAR)
    assert count(space) == {"BTC/USDT": 3}
