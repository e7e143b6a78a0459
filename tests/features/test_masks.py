"""In: bars that leave nothing to divide by. Out: a number or a mask, never NaN, and what follows is not poisoned."""

from __future__ import annotations

import polars as pl
import pytest

from klinepred.calendar import Clock
from klinepred.errors import FeatureError
from klinepred.features.build import F50, build_features
from klinepred.schema import CALENDAR, PRICES
from tests.features.frames import NAMES, bits_differ, built, differ, float64, market, not_finite

ROW = pl.int_range(pl.len())
ALWAYS = {name for name in NAMES if name.startswith(("clock__", "cross__"))}


def _still(bars: pl.DataFrame, where: pl.Expr, *, volume: float = 0.0) -> pl.DataFrame:
    price = pl.when(where).then(pl.col("open").filter(where).first())
    prices = [price.otherwise(name).alias(name) for name in PRICES]
    return bars.with_columns(*prices, pl.when(where).then(volume).otherwise("volume").alias("volume"))


BARS = market("A", days=40, seed=61)
ODD = {
    "a market that never moves": _still(BARS, pl.lit(True), volume=10.0),
    "a market that never moves nor trades": _still(BARS, pl.lit(True)),
    "no volume at all": BARS.with_columns(volume=pl.lit(0.0)),
    "the same volume on every bar": BARS.with_columns(volume=pl.lit(7.0)),
    "closes that never move in bars that do": BARS.with_columns(open=pl.lit(99.0), close=pl.lit(99.0)).with_columns(
        high=pl.lit(99.0) + ROW % 3, low=pl.lit(98.5)
    ),
    "one bar": BARS.head(1),
    "two bars": BARS.head(2),
    "one session": BARS.head(78),
    "every other bar missing": BARS.filter(ROW % 2 == 0),
    "one bar a session": BARS.filter(ROW % 78 == 40),
    "a month away": BARS.filter((ROW < 300) | (ROW > 1500)),
    "prices of a billionth": BARS.with_columns(pl.col(name) * 1e-11 for name in PRICES),
    "the largest volumes": BARS.with_columns(pl.col("volume") * 1e30),
    "a price that doubles each bar": BARS.head(500).with_columns(
        (pl.col(name) * 2.0 ** (ROW % 900)).alias(name) for name in PRICES
    ),
    "back and forth": BARS.with_columns((10.0 + ROW % 2).alias(name) for name in PRICES),
    "a lunch break": market("A", "XHKG", days=10, seed=62, still=0.5, silent=0.5),
    "around the clock": market("A", "24/7", days=6, seed=63, still=0.5, silent=0.5),
    "a half day": market("A", start="2026-11-23", days=9, seed=64, still=0.5, silent=0.5),
    "many of them": market("ABCDEFGH", days=5, seed=65, still=0.9, silent=0.9, lost=0.3),
}


@pytest.mark.parametrize("kind", ODD)
def test_a_number_or_a_mask_but_never_nan(kind: str) -> None:
    frame = built(ODD[kind]).frame
    assert frame.height == ODD[kind].height
    assert frame.select(NAMES).dtypes == [pl.Float32] * 50
    assert not_finite(frame) == []
    assert not_finite(float64(ODD[kind])) == []


@pytest.mark.parametrize("kind", ["one bar", "two bars", "one session", "a market that never moves nor trades"])
def test_the_clock_has_a_value_on_every_bar(kind: str) -> None:
    frame = built(ODD[kind]).frame
    assert {name for name in ALWAYS if name.startswith("clock__") and frame[name].null_count()} == set()


def test_a_market_that_never_moves_shows_nothing_that_is_0_over_0() -> None:
    last = built(ODD["a market that never moves nor trades"]).frame.row(-1, named=True)
    # a still market has a place in its range of 25 bars: the newest of equals is both highest and lowest
    assert {name: last[name] for name in NAMES if last[name] is not None and name not in ALWAYS} == {
        "trend__aroon_25": 0.0
    }


@pytest.mark.parametrize("trouble", ["still", "silent", "away"])
def test_after_the_lookback_nothing_is_left_of_a_masked_stretch(trouble: str) -> None:
    stretch = ROW.is_between(600, 900)
    bars = {
        "still": lambda: _still(BARS, stretch),
        "silent": lambda: BARS.with_columns(volume=pl.when(stretch).then(0.0).otherwise("volume")),
        "away": lambda: BARS.filter(~stretch),
    }[trouble]()
    table = float64(bars).filter(pl.col("ts") > BARS["ts"][900])
    assert table.height > 1000
    for feature in F50.features:
        bars_after = max(feature.lookback_bars, 78 * (feature.lookback_sessions + 1))
        assert table[feature.name][bars_after:].null_count() == 0 or feature.first_value == 1, feature.name


def test_a_missing_bar_masks_what_would_bridge_it_and_no_more() -> None:
    whole, holed = float64(BARS), float64(BARS.filter(ROW != 300))
    after = holed.filter(pl.col("ts") > BARS["ts"][300])
    for bars, name in ((1, "price__return_1"), (12, "price__return_12"), (78, "price__return_78")):
        assert after[name].head(bars).null_count() == bars, name
        assert after[name][bars] is not None, name
    late = whole.filter(pl.col("ts") > BARS["ts"][300 + 22 * 78])
    assert differ(late, holed.filter(pl.col("ts") > BARS["ts"][300 + 22 * 78]), spread=whole) == {}


def test_nothing_is_shown_before_its_first_bar() -> None:
    table = float64(BARS)
    for feature in F50.features:
        assert table[feature.name].head(feature.first_value - 1).is_null().all(), feature.name


def test_nearly_all_is_shown_from_its_first_bar_on() -> None:
    table = float64(market("ABCDEF", days=30, seed=66, tick=1e-9)).filter(pl.col("symbol") == "A")
    late = {
        feature.name: table[feature.name].is_not_null().arg_max()
        for feature in F50.features
        if table[feature.name].is_not_null().arg_max() != feature.first_value - 1
    }
    # these wait for a second session
    assert late == {"price__overnight_gap": 78, "volume__same_time_20": 78}


def test_no_bars_give_no_rows() -> None:
    frame = build_features(BARS.head(0)).frame
    assert frame.height == 0
    assert frame.columns == ["symbol", "ts", "close", *NAMES]


def test_lazy_bars_are_bars() -> None:
    assert bits_differ(built(BARS).frame, build_features(BARS.lazy()).frame) == []


def test_a_bar_where_the_market_is_closed_is_refused() -> None:
    night = BARS.head(3).with_columns(pl.col("ts") + pl.duration(hours=12))
    with pytest.raises(FeatureError, match="3 others, the first of A at 2026-06-02T01:30:00Z by XNYS"):
        build_features(night)


def test_bars_without_a_calendar_are_refused() -> None:
    with pytest.raises(FeatureError, match="no calendar"):
        build_features(BARS.drop(CALENDAR))


def test_the_frame_says_the_calendar_of_each_symbol() -> None:
    two = pl.concat([market("A", days=2), market("B", "24/7", days=1)])
    table = build_features(two)
    assert table.calendars == {"A": str(Clock("XNYS")), "B": "24/7"}
    assert table.features is F50
    assert table.frame.select("symbol", "ts", "close").equals(two.sort("symbol", "ts").select("symbol", "ts", "close"))


@pytest.mark.parametrize("seed", range(4))
def test_efficiency_is_masked_exactly_while_the_price_has_not_moved(seed: int) -> None:
    """A sum of moves that are all zero keeps the rounding of those before it: 0/0 must not become -0 or 1e-3."""
    bars = market("A", days=20, seed=70 + seed, price=1.0, tick=0.01, move=1e-3)
    found = float64(bars)["trend__efficiency_12"]
    closes = bars["close"]
    moved = pl.Series([i >= 12 and len(set(closes[i - 12 : i + 1])) > 1 for i in range(len(closes))])
    assert 100 < int(moved.sum()) < len(closes) - 100, "there are both"
    assert (found.is_not_null() == moved).all()
    assert found.abs().max() <= 1.0 + 1e-9  # type: ignore[operator]


@pytest.mark.parametrize("step", [0.01, 0.3, 1.0])
def test_a_volatility_that_never_changes_has_no_variation_and_is_not_masked(step: float) -> None:
    """Its mean square may be below the square of its mean, by rounding."""
    bars = BARS.with_columns((10.0 + step * (ROW % 2)).alias(name) for name in PRICES)
    known = built(bars).frame.get_column("volatility__of_volatility_78")[39:]  # its first value stands in row 40
    assert known.null_count() == 0
    assert known.is_between(0.0, 1e-7).all()
