"""In: the features section of a pipeline. Out: the set it stands for, with reach and fingerprint, or one message."""

from __future__ import annotations

from datetime import date

import polars as pl
import pytest

from klinepred.errors import ConfigError
from klinepred.features.build import F50, build_features
from klinepred.features.custom import features_for, sql_feature
from klinepred.settings import FeatureSettings
from tests.features.formulas import ROWS, value_of
from tests.features.frames import market, prices_times


def test_a_feature_need_not_be_free_of_scale() -> None:
    bars = market("A", days=3)
    assert value_of(prices_times(bars, 10.0), "high - low")[-1] == pytest.approx(
        10.0 * (value_of(bars, "high - low")[-1] or 0.0)
    )


def test_first_value_and_lookback_come_from_the_formula() -> None:
    feature = sql_feature("custom__a", f"LAG(AVG(close) OVER (ORDER BY ts {ROWS}), 2)")
    assert (feature.first_value, feature.lookback_bars, feature.lookback_sessions) == (8, 8, 0)
    found = value_of(market("A", days=2), f"LAG(AVG(close) OVER (ORDER BY ts {ROWS}), 2)")
    assert [value is None for value in found[:9]] == [True] * 7 + [False] * 2


def test_the_set_of_a_pipeline_is_the_built_in_one_and_the_users_own() -> None:
    assert features_for(FeatureSettings()) is F50
    custom = {"custom__spread_3": "high - low", "mine__body": "close - open"}
    own = features_for(FeatureSettings(custom=custom, exclude=("cross", "trend__rsi_14")))
    assert own.name == "f50+2-5"
    assert own.names == (
        *(name for name in F50.names if not name.startswith("cross__") and name != "trend__rsi_14"),
        "custom__spread_3",
        "mine__body",
    )
    frame = build_features(market("ABC", days=3), own).frame
    assert frame.columns == ["symbol", "ts", "close", *own.names]
    assert set(frame.dtypes[3:]) == {pl.Float32()}
    whole = build_features(market("ABC", days=3)).frame
    assert frame.select(own.names[:-2]).equals(whole.select(own.names[:-2]))


def test_the_fingerprint_is_of_the_meaning_of_the_formula() -> None:
    def mark(text: str) -> str:
        return features_for(FeatureSettings(custom={"custom__a": text})).fingerprint

    assert mark("high-low") == mark("(HIGH - low) -- the range")
    assert mark("high - low") != mark("high - open")
    assert mark("high - low") != F50.fingerprint


def test_excluding_what_is_not_there_or_everything_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"trend__rsi_41") as caught:
        features_for(FeatureSettings(exclude=("trend__rsi_41",)))
    assert "did you mean trend__rsi_14?" in caught.value.do
    with pytest.raises(ConfigError, match=r"features\.exclude"):
        features_for(FeatureSettings(exclude=("price", "trend", "volatility", "volume", "clock", "cross")))
    own = FeatureSettings(
        exclude=("price", "trend", "volatility", "volume", "clock", "cross"), custom={"a__b": "close"}
    )
    assert features_for(own).names == ("a__b",)


def test_a_set_of_own_features_alone_is_built_over_any_calendar() -> None:
    families = tuple({feature.family for feature in F50.features})
    own = features_for(FeatureSettings(exclude=families, custom={"a__b": "close"}))
    frame = build_features(market("A", "24/7", days=2), own).frame
    assert frame.get_column("a__b").to_list() == frame.get_column("close").cast(pl.Float32).to_list()
    assert frame.get_column("ts").dt.date().min() == date(2026, 6, 1)
