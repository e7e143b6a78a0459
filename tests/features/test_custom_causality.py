"""In: features in SQL, other futures, other symbols, shorter pasts. Out: not one bit of a row depends on them."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from klinepred.features.build import compute_features
from klinepred.features.custom import features_for
from klinepred.formula.names import FAMILIES
from klinepred.schema import PRICES, VALUES
from klinepred.settings import FeatureSettings
from tests.features.formulas import ALL
from tests.features.frames import market


def _bits(frame: pl.DataFrame) -> list[tuple[bytes, bytes]]:
    columns = [frame.get_column(name) for name in ALL.names]
    return [(c.is_null().to_numpy().tobytes(), c.fill_null(0.0).to_numpy().tobytes()) for c in columns]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.95), st.sampled_from(["other", "flat", "cut", "silent", "gaps"]))
def test_no_future_changes_a_bit_of_the_past(seed: int, share: float, kind: str) -> None:
    bars = market("AB", days=6, seed=seed % 1000, still=0.1 * (seed % 2), silent=0.1, lost=0.03)
    stamps = bars.get_column("ts").unique().sort()
    cut = stamps[int(share * len(stamps))]
    later = pl.col("ts") > cut
    noise = pl.Series(np.random.default_rng(seed).lognormal(0.0, 3.0, bars.height))
    noisy = [pl.when(later).then(pl.col(name) * noise).otherwise(pl.col(name)).alias(name) for name in VALUES]
    still = [pl.when(later).then(7.0).otherwise(pl.col(name)).alias(name) for name in PRICES]
    futures = {
        "other": lambda: bars.with_columns(noisy),
        "flat": lambda: bars.with_columns(still),
        "silent": lambda: bars.with_columns(volume=pl.when(later).then(0.0).otherwise(pl.col("volume"))),
        "gaps": lambda: bars.filter(~later | (noise > 1.0)),
        "cut": lambda: bars.filter(~later),
    }
    one, two = (compute_features(frame, ALL, dtype=pl.Float64()).filter(~later) for frame in (bars, futures[kind]()))
    assert _bits(one) == _bits(two)


def test_each_symbol_is_computed_by_itself() -> None:
    bars = market("ABC", days=5, still=0.1, lost=0.05)
    together = compute_features(bars, ALL, dtype=pl.Float64())
    for symbol in "ABC":
        alone = compute_features(bars.filter(pl.col("symbol") == symbol), ALL, dtype=pl.Float64())
        assert _bits(alone) == _bits(together.filter(pl.col("symbol") == symbol))


def test_from_the_lookback_on_older_bars_do_not_matter() -> None:
    bars = market("A", days=10, still=0.1, silent=0.1, lost=0.02)
    whole = compute_features(bars, ALL, dtype=pl.Float64())
    for start in (1, 50, 333):
        part = compute_features(bars.slice(start), ALL, dtype=pl.Float64())
        for feature in ALL.features:
            skip = feature.lookback_bars - 1
            one = whole.get_column(feature.name).slice(start + skip)
            two = part.get_column(feature.name).slice(skip)
            assert one.is_null().equals(two.is_null()), feature.name
            np.testing.assert_allclose(one.drop_nulls(), two.drop_nulls(), rtol=1e-7, atol=1e-12, err_msg=feature.name)


def test_no_bars_and_one_bar_are_no_error() -> None:
    bars = market("A", days=2)
    for few in (bars.head(0), bars.head(1)):
        frame = compute_features(few, ALL, dtype=pl.Float64())
        assert frame.height == few.height
        assert frame.get_column("custom__avg_raw").null_count() == few.height


def test_a_sum_that_runs_over_is_forgotten_with_the_bars_that_made_it() -> None:
    """Two bars of e^709 are more than Float64 holds; four bars later the windows are the plain ones again."""
    bars = market("A", days=3)
    high = pl.int_range(pl.len()).is_in([40, 41])
    loud = bars.with_columns(volume=pl.when(high).then(709.0).otherwise(1.0))
    for name, want in (("SUM", 3.0 * np.e), ("AVG", np.e), ("STDDEV", 0.0)):
        sql = f"{name}(EXP(volume)) OVER (ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
        own = features_for(FeatureSettings(custom={"own__x": sql}, exclude=FAMILIES))
        values = compute_features(loud, own, dtype=pl.Float64()).get_column("own__x")
        assert values[44:].is_not_null().all()
        np.testing.assert_allclose(values[44:], want, rtol=1e-12, atol=1e-12)
