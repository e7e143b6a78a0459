"""In: pages of an exchange. Out: ccxt itself delivers each bar once, or the failure has its name."""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime, timedelta

import polars as pl
import pytest

from klinepred.bars.delivery import Failure
from klinepred.bars.sources import batch
from klinepred.errors import SourceError, UsageError
from klinepred.schema import BAR, BAR_SCHEMA
from tests.bars.coins import FIRST, T0, ask, at
from tests.binance_server import FakeBinance, Reply, klines


def test_history_comes_page_by_page_each_bar_once(fake: FakeBinance, waits: list[float]) -> None:
    fake.klines["BTCUSDT"] = klines(T0, 2_500)
    (one,) = ask("BTC/USDT", now=at(2_500))
    assert one.frame.schema == pl.Schema(BAR_SCHEMA)
    assert one.frame["ts"].to_list() == [at(k) for k in range(2_500)]
    assert one.frame.row(1234, named=True) == {
        "symbol": "BTC/USDT",
        "ts": at(1234),
        "open": 31_233.0,
        "high": 31_236.0,
        "low": 31_231.0,
        "close": 31_234.0,
        "volume": 13.34,
    }
    assert fake.since("BTCUSDT") == [at(0), at(1_000), at(2_000)]
    assert one.failures == {}
    assert one.remarks == ()
    assert one.source.startswith("exchange binance (ccxt 4.")


def test_spot_and_perpetual_are_two_markets(fake: FakeBinance, waits: list[float]) -> None:
    fake.klines["BTCUSDT"] = klines(T0, 10)
    fake.klines["fapi BTCUSDT"] = klines(T0, 10, price=40_000.0)
    (one,) = ask("BTC/USDT:USDT", "BTC/USDT", now=at(10))
    closes = one.frame.group_by("symbol", maintain_order=True).agg(pl.col("close").first())
    assert closes.rows() == [("BTC/USDT:USDT", 40_000.0), ("BTC/USDT", 30_000.0)]


def test_pages_that_overlap_give_each_bar_once(fake: FakeBinance, waits: list[float]) -> None:
    """An exchange that begins each page some bars before it was asked to."""
    rows = klines(T0 - 50 * BAR, 1_550)

    def early(query: dict[str, str]) -> Reply:
        since = int(query["startTime"]) - 50 * 300_000
        return Reply(200, json.dumps([row for row in rows if row[0] >= since][:1_000]))

    fake.instead["BTCUSDT"] = early
    (one,) = ask("BTC/USDT", now=at(1_500))
    assert one.frame["ts"].to_list() == [at(k) for k in range(1_500)]


def test_a_page_that_does_not_advance_ends_the_asking(fake: FakeBinance, waits: list[float]) -> None:
    fake.instead["BTCUSDT"] = lambda query: Reply(200, json.dumps(klines(T0, 700)))
    (one,) = ask("BTC/USDT", now=at(10_000))
    assert one.frame.height == 700
    assert len(fake.asked) == 2


def test_an_empty_page_in_the_middle_is_no_end(fake: FakeBinance, waits: list[float]) -> None:
    """Exchanges that answer with the bars of a window; for ten days there are none."""
    rows = [*klines(T0, 300), *klines(at(3_300), 400)]

    def window(query: dict[str, str]) -> Reply:
        since = int(query["startTime"])
        return Reply(200, json.dumps([row for row in rows if since <= row[0] < since + 1_000 * 300_000]))

    fake.instead["BTCUSDT"] = window
    (one,) = ask("BTC/USDT", now=at(3_700))
    assert one.frame.height == 700
    assert len(fake.asked) < 8


def test_nothing_after_the_end_or_after_now_is_taken(fake: FakeBinance, waits: list[float]) -> None:
    fake.klines["BTCUSDT"] = klines(T0, 3_000)
    (one,) = ask("BTC/USDT", now=at(3_000), start=date(2026, 6, 2), end=date(2026, 6, 3))
    assert one.frame["ts"].to_list() == [at(k) for k in range(288, 288 * 3)]
    (two,) = ask("BTC/USDT", now=at(500) + timedelta(minutes=2), end=date(2026, 6, 30))
    assert two.frame["ts"][-1] == at(500)  # still open: cleaning holds it back


def test_without_a_start_the_last_hour_stored_is_asked_for_again(fake: FakeBinance, waits: list[float]) -> None:
    fake.klines["BTCUSDT"] = klines(T0, 900)
    (one,) = ask("BTC/USDT", now=at(900), start=None, stored={"BTC/USDT": [(at(0), at(800))]})
    assert fake.since("BTCUSDT") == [at(788)]
    assert one.frame.height == 112


def test_without_a_start_and_a_store_it_is_the_last_60_days(fake: FakeBinance, waits: list[float]) -> None:
    ask("BTC/USDT", now=datetime(2026, 6, 30, 22, tzinfo=UTC), start=None)
    assert fake.since("BTCUSDT")[0] == datetime(2026, 5, 1, tzinfo=UTC)


def test_a_start_alone_asks_for_what_is_not_stored(fake: FakeBinance, waits: list[float]) -> None:
    """Stored: bars 1000 to 1999 and 2600 to 2999; wanted: all from bar 0 to bar 3100."""
    fake.klines["BTCUSDT"] = klines(T0, 3_200)
    (one,) = ask("BTC/USDT", now=at(3_100), stored={"BTC/USDT": [(at(1_000), at(1_999)), (at(2_600), at(2_999))]})
    assert fake.since("BTCUSDT") == [at(0), at(2_000), at(3_000)]
    assert one.frame["ts"].to_list() == [at(k) for k in [*range(1_000), *range(2_000, 3_100)]]


def test_a_start_with_an_end_asks_for_all_of_those_days(fake: FakeBinance, waits: list[float]) -> None:
    fake.klines["BTCUSDT"] = klines(T0, 600)
    (one,) = ask("BTC/USDT", now=at(600), end=FIRST, stored={"BTC/USDT": [(at(0), at(599))]})
    assert one.frame["ts"].to_list() == [at(k) for k in range(288)]


def test_a_market_listed_later_than_asked_for_is_said(fake: FakeBinance, waits: list[float]) -> None:
    fake.klines["BTCUSDT"] = klines(at(2_880), 10)
    (one,) = ask("BTC/USDT", now=at(2_890))
    assert one.frame.height == 10
    assert one.remarks == ("BTC/USDT: asked from 2026-06-01 00:00Z, binance gives it from 2026-06-11 00:00Z on only",)


@pytest.mark.parametrize(
    ("given", "words"),
    [("BTC-USDT", "near: BTC/USDT"), ("BTCUSDT", "near: BTC/USDT"), ("XYZ/ABC", "no market"), ("../evil", "no market")],
)
def test_a_market_the_exchange_does_not_have_is_unknown(
    fake: FakeBinance, waits: list[float], given: str, words: str
) -> None:
    fake.klines["BTCUSDT"] = klines(T0, 10)
    (one,) = ask(given, "BTC/USDT", now=at(10))
    assert one.frame["symbol"].unique().to_list() == ["BTC/USDT"]
    assert one.failures[given].status == "unknown-symbol"
    assert words in one.failures[given].message


def test_a_market_in_small_letters_is_asked_for_once_by_its_name(fake: FakeBinance, waits: list[float]) -> None:
    fake.klines["BTCUSDT"] = klines(T0, 10)
    (one,) = ask("btc/usdt", "BTC/USDT", now=at(10))
    assert one.frame["symbol"].unique().to_list() == ["BTC/USDT"]
    assert len(fake.asked) == 1
    assert one.remarks == ("btc/usdt is BTC/USDT at binance: its bars are kept under that name",)


def test_a_known_market_without_a_bar_is_a_failure_and_nothing_new_is_none(
    fake: FakeBinance, waits: list[float]
) -> None:
    (one,) = ask("BTC/USDT", now=at(10))
    assert one.failures["BTC/USDT"].status == "failed"
    assert "not a single bar" in one.failures["BTC/USDT"].message
    (two,) = ask("BTC/USDT", now=at(300), start=None, end=FIRST, stored={"BTC/USDT": [(at(0), at(500))]})
    assert two.failures["BTC/USDT"].status == "unchanged"


def test_years_of_history_come_in_bounded_deliveries(
    fake: FakeBinance, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "ROWS", 2_000)
    fake.klines["BTCUSDT"], fake.klines["ETHUSDT"] = klines(T0, 4_500), klines(T0, 500)
    got = ask("BTC/USDT", "ETH/USDT", now=at(4_500))
    assert [one.frame.height for one in got] == [2_000, 2_000, 1_000]
    assert pl.concat([one.frame for one in got]).n_unique(["symbol", "ts"]) == 5_000


def test_what_cannot_be_read_in_a_row_is_passed_on_as_missing(fake: FakeBinance, waits: list[float]) -> None:
    rows = klines(T0, 6)
    rows[2][5], rows[3][4] = None, "nonsense"
    fake.klines["BTCUSDT"] = rows
    (one,) = ask("BTC/USDT", now=at(6))
    assert one.frame["volume"].is_null().to_list() == [False, False, True, False, False, False]
    assert one.frame["close"].is_null().to_list() == [False, False, False, True, False, False]


def test_markets_of_another_exchange_are_not_asked_for(fake: FakeBinance, waits: list[float]) -> None:
    fake.klines["BTCUSDT"] = klines(T0, 10)
    (one,) = ask("BTC/USDT", now=at(10), barred={"BTC/USDT": Failure("rejected", "stored from kraken")})
    assert one.failures["BTC/USDT"].message == "stored from kraken"
    assert fake.asked == []


def test_an_exchange_nobody_knows_names_the_nearest(fake: FakeBinance, waits: list[float]) -> None:
    with pytest.raises(UsageError) as caught:
        ask("BTC/USDT", now=at(10), name="binence")
    assert "binance" in caught.value.do


def test_an_exchange_without_5_minute_bars_is_refused_by_name(fake: FakeBinance, waits: list[float]) -> None:
    import ccxt

    without = next(
        name
        for name in ccxt.exchanges
        if getattr(ccxt, name)().has.get("fetchOHLCV") is True and "5m" not in getattr(ccxt, name)().timeframes
    )
    with pytest.raises(SourceError) as caught:
        ask("BTC/USDT", now=at(10), name=without)
    assert without in str(caught.value)
    assert "five minutes" in caught.value.expected


def test_without_ccxt_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ccxt", None)
    with pytest.raises(SourceError) as caught:
        ask("BTC/USDT", now=at(10))
    assert caught.value.do == 'pip install "klinepred[exchange]"'
