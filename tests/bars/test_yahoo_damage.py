"""In: charts of Yahoo damaged at random. Out: bars in the agreed shape that cleaning can judge, or a named failure."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from klinepred.bars.clean import clean
from klinepred.bars.sources.yahoo import fetch
from klinepred.calendar import Clock
from klinepred.schema import BAR_SCHEMA
from tests.yahoo_server import Reply, bars_of, chart, serve, yfinance_on

NOW = datetime(2026, 6, 30, 22, 0, tzinfo=UTC)
COUNT = 60
JUNK: list[Any] = [
    *(None, "x", "", [], {}, [None], [[]], True, 0, -1, 3.5, 10**12, 10**20, -(10**12), 1e308),
    *(float("nan"), float("inf"), "2026-01-01", "UTC", "America/Nowhere"),
]


def spots(node: Any) -> list[tuple[Any, Any]]:
    """Every place of a JSON value, as the container and the key in it; of lists the first six."""
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))[:6] if isinstance(node, list) else []
    return [place for key in keys for place in [(node, key), *spots(node[key])]]


def damaged(text: str, dice: random.Random) -> str:
    """One value of `text` left out, or replaced by junk."""
    table = json.loads(text)
    node, key = dice.choice(spots(table["chart"]["result"]))
    if dice.random() < 0.2:
        del node[key]
    else:
        node[key] = dice.choice(JUNK)
    return json.dumps(table)


def test_a_damaged_chart_is_bars_that_can_be_judged_or_a_named_failure(tmp_path: Path) -> None:
    day = bars_of(datetime(2026, 6, 30, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC))[:12]
    stamp = int(day[3][0].timestamp())
    events = {
        "dividends": {str(stamp): {"amount": 0.5, "date": stamp}},
        "splits": {str(stamp): {"date": stamp, "numerator": 2.0, "denominator": 1.0, "splitRatio": "2:1"}},
    }
    sound = chart("AAPX", day, events=events).body
    dice = random.Random(11)  # noqa: S311  # which damage, not a secret
    names = [f"S{number}" for number in range(COUNT)]
    outcomes: Counter[str] = Counter()
    clock = Clock("XNYS")
    with serve() as yahoo, yfinance_on(yahoo, tmp_path):
        for name in names:
            yahoo.answers[name] = Reply(200, damaged(sound.replace("AAPX", name), dice))
        for delivery in fetch(names, clock=clock, start=None, end=None, now=NOW):
            assert dict(delivery.frame.schema) == BAR_SCHEMA
            for name, failure in delivery.failures.items():
                assert failure.message, name
                outcomes[failure.status] += 1
            for _, bars in delivery.frame.group_by("symbol"):
                cleaned = clean(bars, clock=clock, now=NOW)
                assert cleaned.bars.height + cleaned.rejects.height <= bars.height
                outcomes["bars"] += 1
    assert sum(outcomes.values()) == COUNT
    assert outcomes["bars"] >= 10
    assert outcomes["failed"] >= 10
