"""In: the whole history, and part of it. Out: from its lookback on each feature has forgotten what lay before."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from klinepred.calendar import place
from klinepred.features.build import F50
from klinepred.schema import PRICES
from tests.features.frames import differ, float64, market

MARKETS = {
    "clean": market("ABCDEF", days=50, seed=11),
    "gaps, flat bars, silence": market("ABCDEF", days=50, seed=12, lost=0.05, still=0.2, silent=0.2),
    "coarse ticks": market("ABCDE", days=50, seed=13, price=5.0, move=3e-4, still=0.4, silent=0.3),
    "pennies": market("ABCDE", days=50, seed=16, price=0.05, tick=0.01, move=4e-3),
    "dead pennies": market("ABCDE", days=50, seed=17, price=0.05, tick=0.01, move=2e-3, still=0.5),
    "around the clock": market("A", "24/7", days=25, seed=14, price=3e4),
    "lunch break": market("ABCDE", "XHKG", days=50, seed=15),
}


@pytest.mark.parametrize("kind", MARKETS)
@pytest.mark.parametrize("skipped", [1, 3])
def test_from_its_lookback_on_a_feature_equals_itself_with_the_whole_history(kind: str, skipped: int) -> None:
    _compare(MARKETS[kind], skipped)


def test_a_wild_past_is_forgotten_too() -> None:
    bars = MARKETS["clean"]
    wild = pl.col("ts").rank("dense") <= 100
    jump = pl.Series(np.exp(np.random.default_rng(1).normal(0.0, 0.1, bars.height)))
    prices = [pl.when(wild).then(pl.col(name) * jump).otherwise(name).alias(name) for name in PRICES]
    bars = bars.with_columns(*prices, pl.when(wild).then(1e11).otherwise("volume").alias("volume"))
    bars = bars.with_columns(high=pl.max_horizontal(PRICES), low=pl.min_horizontal(PRICES))
    _compare(bars, 3)


def _compare(bars: pl.DataFrame, skipped: int) -> None:
    session = place(bars)["session"]
    rest = bars.filter(session >= session.unique().sort()[skipped])
    whole, part = float64(bars), float64(rest)
    whole = whole.join(rest.select("symbol", "ts"), on=["symbol", "ts"], how="semi", maintain_order="left")
    seen = place(rest).select(
        bars=pl.int_range(1, pl.len() + 1).over("symbol"),
        sessions=(pl.col("session").rank("dense") - 1).over("symbol"),
    )
    late = {}
    for feature in F50.features:
        usable = (seen["bars"] >= feature.lookback_bars) & (seen["sessions"] >= feature.lookback_sessions)
        assert usable.any(), feature.name
        late.update(differ(whole.filter(usable), part.filter(usable), spread=whole, names=[feature.name]))
    assert late == {}


def test_the_set_is_usable_from_its_longest_lookback_on() -> None:
    assert F50.lookback_bars == max(feature.lookback_bars for feature in F50.features)
    assert F50.lookback_sessions == max(feature.lookback_sessions for feature in F50.features)
    assert F50.lookback_bars <= 420
    assert F50.lookback_sessions == 20
