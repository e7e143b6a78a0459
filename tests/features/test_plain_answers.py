"""In: random bars with gaps, flat bars and silence. Out: each feature without TA-Lib equals its plain loop."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import polars as pl
import pytest

from klinepred.calendar import place
from klinepred.features.build import F50
from tests.features.frames import differ, float64, market
from tests.features.slow import PLAIN, Number, Tape, scaled_return, tape
from tests.features.slow_volume import PLAIN_VOLUME, beta, market_return, rank

ANSWERS = {**PLAIN, **PLAIN_VOLUME}
CROSS = ("cross__market_1", "cross__relative_1", "cross__rank_12", "cross__beta_78")
BY_TALIB = (
    "trend__macd_hist_12_26_9", "trend__rsi_14", "trend__cci_20", "trend__adx_14", "trend__aroon_25",
    "volatility__atr_14", "volume__mfi_14",
)  # fmt: skip
FIRST = {feature.name: feature.first_value for feature in F50.features}

MARKETS = {
    "clean": market("A", days=8, seed=2),
    "gaps, flat bars, silence": market("A", days=9, seed=3, lost=0.04, still=0.15, silent=0.15),
    "coarse ticks": market("A", days=8, seed=4, price=5.0, move=4e-4, still=0.3, silent=0.3),
    "lunch break": market("A", "XHKG", days=9, seed=5, lost=0.01),
    "around the clock": market("A", "24/7", days=2, seed=6, price=30_000.0),
    "half day": market("A", start="2026-11-23", days=9, seed=7),
}


def test_every_feature_has_an_independent_answer() -> None:
    assert sorted((*ANSWERS, *CROSS, *BY_TALIB)) == sorted(F50.names)


def by_hand(t: Tape, name: str, answer: Callable[[Tape, int], Number]) -> pl.Series:
    rows = range(len(t.c))
    return pl.Series(name, [answer(t, i) if i + 1 >= FIRST[name] else None for i in rows], dtype=pl.Float64)


@pytest.mark.parametrize("kind", MARKETS)
def test_features_equal_their_plain_loops(kind: str) -> None:
    bars = MARKETS[kind]
    t = tape(place(bars))
    slow = pl.DataFrame([by_hand(t, name, answer) for name, answer in ANSWERS.items()])
    assert differ(slow, float64(bars), names=tuple(ANSWERS)) == {}


def test_cross_section_equals_its_plain_loops() -> None:
    members, outsider = "ABCDEFG", "Z"
    bars = pl.concat([market(members, days=6, seed=8, lost=0.03), market(outsider, days=6, seed=9)])
    # before 3 June three members trade alone: no quorum
    bars = bars.filter(pl.col("symbol").is_in(["A", "B", "C", "Z"]) | (pl.col("ts").dt.day() >= 3)).sort("symbol", "ts")
    table = float64(bars, universe=tuple(members))
    z, z_12 = (_returns(bars, steps) for steps in (1, 12))
    for symbol in (*members, outsider):
        stamps: list[datetime] = bars.filter(pl.col("symbol") == symbol)["ts"].to_list()
        own = [z[ts][symbol] for ts in stamps]
        average = [market_return(z[ts], members) for ts in stamps]
        slow: dict[str, list[Number]] = {
            "cross__market_1": [m or 0.0 for m in average],
            "cross__relative_1": [
                0.0 if m is None else None if y is None else y - m for m, y in zip(average, own, strict=True)
            ],
            "cross__rank_12": [rank(z_12[ts], symbol, members) for ts in stamps],
            "cross__beta_78": [beta(own, average, i) for i in range(len(stamps))],
        }
        shown = pl.DataFrame({name: [*[None] * 26, *values[26:]] for name, values in slow.items()}, strict=False)
        assert differ(shown, table.filter(pl.col("symbol") == symbol), names=CROSS) == {}, symbol


def _returns(bars: pl.DataFrame, steps: int) -> dict[datetime, dict[str, Number]]:
    found: dict[datetime, dict[str, Number]] = {}
    for (symbol,), part in bars.group_by("symbol"):
        t = tape(place(part))
        for i, ts in enumerate(part["ts"].to_list()):
            found.setdefault(ts, {})[str(symbol)] = scaled_return(t, i, steps)
    return found
