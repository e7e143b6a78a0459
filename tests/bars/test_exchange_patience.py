"""In: an exchange that refuses, breaks or is slow. Out: waits of a bounded length, then a failure by its name."""

from __future__ import annotations

import json

import pytest

from tests.bars.coins import T0, ask, at
from tests.binance_server import FakeBinance, Reply, at_first, busy, kline, klines


def test_a_rate_limit_that_passes_is_waited_out(fake: FakeBinance, waits: list[float]) -> None:
    fake.klines["BTCUSDT"] = klines(T0, 10)
    fake.instead["BTCUSDT"] = at_first(busy(), busy(418, after_s=7))
    (one,) = ask("BTC/USDT", now=at(10))
    assert one.frame.height == 10
    assert 2.0 <= waits[0] <= 3.0
    assert 7.0 <= waits[1] <= 10.5  # longer than the 4 seconds of its turn: the exchange said so


def test_a_ban_longer_than_the_patience_is_not_waited_for(fake: FakeBinance, waits: list[float]) -> None:
    fake.klines["ETHUSDT"] = klines(T0, 10)
    fake.instead["BTCUSDT"] = lambda query: busy(418, after_s=7_200)
    (one,) = ask("BTC/USDT", "ETH/USDT", now=at(10))
    assert one.failures["BTC/USDT"].status == "rate-limited"
    assert "7,200 s" in one.failures["BTC/USDT"].message
    assert waits == []
    assert one.frame["symbol"].unique().to_list() == ["ETH/USDT"]


def test_what_came_before_a_rate_limit_is_kept_and_said(fake: FakeBinance, waits: list[float]) -> None:
    fake.klines["BTCUSDT"] = klines(T0, 2_500)
    fake.instead["BTCUSDT"] = lambda query: busy() if len(fake.asked) > 2 else None
    (one,) = ask("BTC/USDT", now=at(2_500))
    assert one.frame.height == 2_000
    assert one.failures["BTC/USDT"].status == "rate-limited"
    assert "taken up to 2026-06-07 22:35Z" in one.failures["BTC/USDT"].message
    assert len(waits) == 5


def test_after_three_markets_refused_nothing_more_is_asked_for(fake: FakeBinance, waits: list[float]) -> None:
    fake.listed = [(name, "USDT") for name in "ABCDE"]
    for name in "ABCDE":
        fake.instead[f"{name}USDT"] = lambda query: busy()
    (one,) = ask(*(f"{name}/USDT" for name in "ABCDE"), now=at(10))
    assert {failure.status for failure in one.failures.values()} == {"rate-limited"}
    assert len(one.failures) == 5
    assert {name for name, _ in fake.asked} == {"AUSDT", "BUSDT", "CUSDT"}
    assert sum(waits) <= 1.5 * 90.0


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, "garbage {"),
        Reply(200, '{"strange": 1}'),
        Reply(200, '[[1, 2], "x", null]'),
        Reply(200, "null"),
        Reply(200, '[["a", "b", "c", "d", "e", "f"]]'),
        Reply(502, "<html>Bad Gateway</html>"),
        Reply(400, '{"code": -1100, "msg": "Illegal characters"}'),
    ],
)
def test_a_broken_answer_is_asked_for_again_then_a_named_failure(
    fake: FakeBinance, waits: list[float], reply: Reply
) -> None:
    fake.klines["BTCUSDT"] = fake.klines["ETHUSDT"] = klines(T0, 10)
    fake.instead["BTCUSDT"] = at_first(reply, reply)
    fake.instead["ETHUSDT"] = lambda query: reply
    (one,) = ask("BTC/USDT", "ETH/USDT", now=at(10))
    assert one.frame["symbol"].to_list() == ["BTC/USDT"] * 10
    assert one.failures["ETH/USDT"].status == "failed"
    assert one.failures["ETH/USDT"].message.startswith("binance ")
    assert len([name for name, _ in fake.asked if name == "ETHUSDT"]) == 3


@pytest.mark.parametrize("reply", [Reply(451, "unavailable from a restricted location"), Reply(503, "")])
def test_an_exchange_that_does_not_open_fails_every_market(fake: FakeBinance, waits: list[float], reply: Reply) -> None:
    fake.markets = reply
    (one,) = ask("BTC/USDT", "ETH/USDT", now=at(10))
    assert [failure.status for failure in one.failures.values()] == ["failed", "failed"]
    assert "could not be reached" in one.failures["ETH/USDT"].message
    assert fake.asked == []


def test_a_stamp_in_another_unit_is_never_a_bar(fake: FakeBinance, waits: list[float]) -> None:
    seconds = kline(T0, 30_000.0)
    seconds[0] //= 1_000
    fake.instead["BTCUSDT"] = lambda query: Reply(200, json.dumps([seconds]))
    (one,) = ask("BTC/USDT", now=at(10))
    assert one.frame.is_empty()
    assert one.failures["BTC/USDT"].status == "failed"
