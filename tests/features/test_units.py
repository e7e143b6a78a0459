"""In: the same bars in other units. Out: the same features: splits and redenominations cannot matter."""

from __future__ import annotations

import polars as pl
import pytest

from klinepred.features.build import F50
from tests.features.frames import bits_differ, built, differ, float64, market, prices_times

# Of two moves of one tick, rounding decides which is the larger, and TA-Lib's ADX counts the larger alone: on prices
# in ticks other units may change it. Prices here have no ticks.
FINE = 1e-9
MARKETS = {
    "clean": market("ABCDEF", days=12, seed=21, tick=FINE),
    "gaps, flat bars, silence": market("ABCDEF", days=14, seed=22, lost=0.05, still=0.2, silent=0.2, tick=FINE),
    "frozen for long": market("ABCDEF", days=14, seed=23, still=0.9, silent=0.5, tick=FINE),
    "around the clock": market("AB", "24/7", days=4, seed=24, price=3e4, tick=FINE),
}


@pytest.mark.parametrize("kind", MARKETS)
@pytest.mark.parametrize(("price", "volume"), [(10.0, 1.0), (1.0, 1000.0), (1.0 / 7.0, 3.0), (1e-6, 1e-3)])
def test_other_units_change_nothing(kind: str, price: float, volume: float) -> None:
    bars = MARKETS[kind]
    assert differ(float64(bars), float64(prices_times(bars, price, volume=volume))) == {}


def test_on_prices_in_ticks_all_but_adx_are_free_of_scale() -> None:
    bars = market("ABCDEF", days=12, seed=25, still=0.1, silent=0.1)
    names = [name for name in F50.names if name != "trend__adx_14"]
    for factor in (10.0, 0.1, 1.0 / 3.0):
        assert differ(float64(bars), float64(prices_times(bars, factor, volume=1e3)), names=names) == {}


def test_coarse_ticks_leave_no_rounding_in_place_of_a_feature() -> None:
    # a dozen and more bars in a row without any move: sums must not be what earlier bars left behind
    bars = market("A", days=20, seed=26, price=5.0, move=2e-4, still=0.5, silent=0.4, lost=0.02)
    names = [name for name in F50.names if name != "trend__adx_14"]
    for factor in (10.0, 1.0 / 7.0):
        assert differ(float64(bars), float64(prices_times(bars, factor, volume=3.0)), names=names) == {}


def test_whole_numbers_as_volume_are_taken_as_numbers() -> None:
    bars = market("ABCDEF", days=5, seed=27).with_columns(pl.col("volume") * 1e5)
    whole = bars.with_columns(pl.col("volume").cast(pl.Int64))
    assert bits_differ(built(bars).frame, built(whole).frame) == []
