"""In: bars whose future is cut off or changed. Out: every feature of the past is the same bit by bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from klinepred.calendar import place
from klinepred.schema import PRICES
from tests.features.frames import bits_differ, built, float64, market

MARKETS = {
    "clean": market("ABCDEF", days=15, seed=1),
    "gaps, flat bars, silence": market("ABCDEF", days=18, seed=2, lost=0.05, still=0.2, silent=0.2),
    "lunch break": market("ABCDE", "XHKG", days=15, seed=3, lost=0.02),
    "around the clock": market("ABCDE", "24/7", days=4, seed=4, price=3e4),
    "one symbol": market("A", days=24, seed=5, still=0.1),
}


def _scaled(bars: pl.DataFrame, later: pl.Expr) -> pl.DataFrame:
    factor = pl.Series(np.exp(np.random.default_rng(7).normal(0.0, 2.0, bars.height)))
    changed = [pl.when(later).then(pl.col(name) * factor).otherwise(name).alias(name) for name in (*PRICES, "volume")]
    return bars.with_columns(changed)


def _set(price: float, volume: float) -> Callable[[pl.DataFrame, pl.Expr], pl.DataFrame]:
    def change(bars: pl.DataFrame, later: pl.Expr) -> pl.DataFrame:
        prices = [pl.when(later).then(price).otherwise(name).alias(name) for name in PRICES]
        return bars.with_columns(*prices, pl.when(later).then(volume).otherwise("volume").alias("volume"))

    return change


def _thinned(bars: pl.DataFrame, later: pl.Expr) -> pl.DataFrame:
    return bars.filter(~later | pl.Series(np.random.default_rng(8).random(bars.height) < 0.5))


FUTURES: dict[str, Callable[[pl.DataFrame, pl.Expr], pl.DataFrame]] = {
    "cut off": lambda bars, later: bars.filter(~later),
    "other prices and volumes": _scaled,
    "standing still without volume": _set(7.0, 0.0),
    "enormous": _set(1e15, 1e18),
    "half of it missing": _thinned,
    "one symbol alone": lambda bars, later: bars.filter(~later | (pl.col("symbol") == "A")),
}


@pytest.mark.parametrize("kind", MARKETS)
@pytest.mark.parametrize("future", FUTURES)
def test_a_changed_future_leaves_every_past_row_bit_identical(kind: str, future: str) -> None:
    bars = MARKETS[kind]
    members = sorted(set(bars["symbol"]))
    stamps = bars["ts"].unique().sort()
    whole = float64(bars)
    for share in (0.1, 0.45, 0.9):
        now = stamps[int(share * len(stamps))]
        other = float64(FUTURES[future](bars, pl.col("ts") > now), universe=members)
        assert bits_differ(whole.filter(pl.col("ts") <= now), other.filter(pl.col("ts") <= now)) == []


def _repeated_extremes(bars: pl.DataFrame, later: pl.Expr) -> pl.DataFrame:
    high, low = bars["high"].max(), bars["low"].min()
    return bars.with_columns(
        high=pl.when(later).then(high).otherwise("high"), low=pl.when(later).then(low).otherwise("low")
    )


@pytest.mark.parametrize("bar", [0, 1, 39, 76, 77])
def test_the_border_of_a_session_is_no_exception(bar: int) -> None:
    bars = MARKETS["gaps, flat bars, silence"]
    placed = place(bars)
    whole, members = float64(bars), sorted(set(bars["symbol"]))
    now = placed.filter((pl.col("bar") == bar) & (pl.col("session").rank("dense") == 9))["ts"][0]
    for future in (*FUTURES.values(), _repeated_extremes):
        other = float64(future(bars, pl.col("ts") > now), universe=members)
        assert bits_differ(whole.filter(pl.col("ts") <= now), other.filter(pl.col("ts") <= now)) == []


def test_the_same_holds_for_what_users_get() -> None:
    bars = MARKETS["gaps, flat bars, silence"]
    members = sorted(set(bars["symbol"]))
    now = bars["ts"].unique().sort()[500]
    past = built(bars).frame.filter(pl.col("ts") <= now)
    assert bits_differ(past, built(bars.filter(pl.col("ts") <= now), universe=members).frame) == []


def test_the_check_catches_a_feature_that_knows_the_future() -> None:
    bars = MARKETS["clean"]
    whole = float64(bars)
    leaked = whole.with_columns(pl.col("price__return_1").shift(-1).over("symbol"))
    now = bars["ts"].unique().sort()[300]
    cut = float64(bars.filter(pl.col("ts") <= now), universe=sorted(set(bars["symbol"])))
    cut = cut.with_columns(pl.col("price__return_1").shift(-1).over("symbol"))
    assert bits_differ(leaked.filter(pl.col("ts") <= now), cut) == ["price__return_1"]
