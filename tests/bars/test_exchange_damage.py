"""In: pages and market lists of an exchange, damaged at random. Out: rows that can be judged, or a named failure."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, date, datetime
from typing import Any

from klinepred.bars.clean import clean
from klinepred.bars.sources.exchange import fetch
from klinepred.calendar import Clock
from klinepred.schema import BAR, BAR_SCHEMA
from tests.bars.test_yahoo_damage import JUNK, spots
from tests.binance_server import FakeBinance, Reply, ccxt_on, klines, serve

T0 = datetime(2026, 6, 1, tzinfo=UTC)
COUNT = 60


def damaged(table: Any, dice: random.Random) -> str:
    """One value left out, or replaced by junk, at times the whole."""
    whole = [json.loads(json.dumps(table))]
    node, key = dice.choice([(whole, 0), *spots(whole[0])])
    if dice.random() < 0.2 and node is not whole:
        del node[key]
    else:
        node[key] = dice.choice(JUNK)
    return json.dumps(whole[0])


def judge(fake: FakeBinance, names: list[str]) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    now, symbols = T0 + 12 * BAR, [f"{name}/USDT" for name in names]
    for delivery in fetch(symbols, exchange="binance", start=date(2026, 6, 1), end=None, now=now, stored={}, barred={}):
        assert dict(delivery.frame.schema) == BAR_SCHEMA
        for name, failure in delivery.failures.items():
            assert failure.message, name
            outcomes[failure.status] += 1
        for _, bars in delivery.frame.group_by("symbol"):
            cleaned = clean(bars, clock=Clock("24/7"), now=now)
            assert cleaned.bars.height + cleaned.rejects.height <= bars.height
            outcomes["bars"] += 1
    return outcomes


def test_a_damaged_page_is_rows_that_can_be_judged_or_a_named_failure() -> None:
    dice = random.Random(3)  # noqa: S311  # which damage, not a secret
    names = [f"S{number}" for number in range(COUNT)]
    with serve() as fake, ccxt_on(fake):
        fake.listed = [(name, "USDT") for name in names]
        for name in names:
            body = damaged(klines(T0, 12), dice)
            fake.instead[f"{name}USDT"] = lambda query, body=body: Reply(200, body)  # type: ignore[misc]
        outcomes = judge(fake, names)
    assert outcomes["bars"] >= COUNT / 2
    assert outcomes["failed"] >= 1
    assert outcomes["bars"] + outcomes["failed"] == COUNT


def test_a_damaged_list_of_markets_is_bars_or_a_named_failure() -> None:
    dice = random.Random(4)  # noqa: S311  # which damage, not a secret
    outcomes: Counter[str] = Counter()
    with serve() as fake, ccxt_on(fake):
        fake.klines["BTCUSDT"] = klines(T0, 12)
        listed = json.loads(fake.answer("/api/v3/exchangeInfo", {}).body)
        for _ in range(COUNT // 3):
            fake.markets = Reply(200, damaged(listed, dice))
            outcomes += judge(fake, ["BTC"])
    assert sum(outcomes.values()) >= COUNT // 3
    assert outcomes["bars"] >= 5
