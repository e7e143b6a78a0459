"""In: bars of reported cases, made anew by their description, the files where they are. Out: the stated numbers."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars.check import check_bars
from klinepred.calendar import Clock, place
from klinepred.features.build import F50
from klinepred.schema import CALENDAR, PRICES, TS
from tests.features.frames import NAMES, float64, market, not_finite
from tests.features.slow import tape

CASES = Path(__file__).parents[2].parent / "shared" / "cases"


def case(name: str, file: str, *, calendar: str = "XNYS") -> pl.DataFrame:
    path = CASES / name / file
    if not path.exists():
        pytest.skip(f"the case {name} is not beside the repository")
    raw = pl.read_csv(path, try_parse_dates=False)
    ts = pl.col("datetime").str.to_datetime(time_zone="UTC").cast(TS)
    values = [pl.col(column).cast(pl.Float64) for column in (*PRICES, "volume")]
    return check_bars(raw.select("symbol", ts.alias("ts"), *values), clock=Clock(calendar)).collect()


def step() -> pl.DataFrame:
    """Two sessions: 100 bars around 100.00, then 56 around 110.00."""
    bars = market("A", start="2026-06-01", days=2, seed=1)
    level = pl.when(pl.int_range(pl.len()) < 100).then(100.0).otherwise(110.0)
    bars = bars.with_columns(open=level, close=level, volume=pl.lit(1000.0))
    return bars.with_columns(high=pl.col("close") + 0.05, low=pl.col("close") - 0.05)


def test_nothing_knows_of_a_step_before_it_happens() -> None:
    _check_step(step())


def test_nothing_knows_of_the_step_of_case_27() -> None:
    _check_step(case("27-step-in-the-price", "step.csv"))


def _check_step(bars: pl.DataFrame) -> None:
    assert bars.height == 156
    table = float64(bars)
    for feature in F50.features:
        values = table[feature.name]
        before = values[59:100] if feature.family not in ("clock", "volume") else values[59:78]
        if feature.family != "clock" and before[0] is not None:
            assert before.to_list() == pytest.approx([before[0]] * len(before), rel=1e-9, abs=1e-9), feature.name
    # its only move is the step, which is above the trailing volatility for the first time on bar 101
    assert table["price__return_1"].head(100).drop_nulls().is_empty()
    t = tape(place(bars))
    assert t.r[100] == pytest.approx(0.095310, abs=5e-7)
    assert table["price__return_1"][100] * t.s[100] == pytest.approx(math.log(1.1))


def test_after_the_step_every_feature_has_a_value_or_is_masked_at_0_over_0() -> None:
    last = float64(step()).row(-1, named=True)
    masked = {name for name in NAMES if last[name] is None}
    # volume never changes; the gap and the close of the last 20 bars do not move: 0/0
    assert masked == {
        "volume__z_78", "volume__price_correlation_24", "price__overnight_gap", "trend__cci_20", "volume__mfi_14",
        "trend__slope_t_24", "trend__efficiency_12",
    }  # fmt: skip


def test_zero_volume_on_moving_bars_leaves_volume_features_finite_or_masked() -> None:
    bars = case("10-zero-volume-moving-price", "BTX-USD.csv", calendar="24/7")
    assert bars.height == 12
    assert (bars["volume"] == 0.0).sum() == 5
    assert not_finite(float64(bars)) == []


def test_vwap_restarts_with_each_session_of_case_29() -> None:
    _check_vwap(case("29-vwap-restarts", "VWX.csv"))


def test_vwap_restarts_with_each_session() -> None:
    stamps = [f"2026-06-0{day}T13:{minute}:00" for day in (2, 3) for minute in (30, 35, 40)]
    close = [100.0, 101.0, 102.0, 110.0, 112.0, 108.0]
    bars = pl.DataFrame(
        {
            "symbol": ["VWX"] * 6,
            "ts": pl.Series(stamps).str.to_datetime(time_zone="UTC").cast(TS),
            "open": close,
            "high": [price + 0.3 for price in close],
            "low": [price - 0.3 for price in close],
            "close": close,
            "volume": [1000.0, 2000.0, 1000.0, 500.0, 1500.0, 2000.0],
        }
    )
    _check_vwap(check_bars(bars, clock=Clock("XNYS")).collect())


def _check_vwap(bars: pl.DataFrame) -> None:
    """A month of other bars before, for the trailing volatility that the distance is measured in."""
    before = market(["VWX"], start="2026-05-26", days=6, seed=2, price=100.0)
    whole = pl.concat([before, bars.with_columns(pl.col(CALENDAR).cast(pl.Categorical))], how="vertical")
    t = tape(place(whole))
    distance = float64(whole)["volume__vwap_distance"].tail(6).to_list()
    unit = [s * math.sqrt(bar + 1.0) for s, bar in zip(t.s[-6:], t.bar[-6:], strict=True) if s is not None]
    vwap = [c / math.exp(d * u) for c, d, u in zip(t.c[-6:], distance, unit, strict=True)]
    assert vwap == pytest.approx([100.0, 100.0 + 2.0 / 3.0, 101.0, 110.0, 111.5, 109.75])


def test_rsi_at_the_start_of_case_31() -> None:
    values = float64(case("31-rsi-and-ema-warm-up", "RSIX.csv"))["trend__rsi_14"].to_list()
    assert values[:14] == [None] * 14
    answers = [70.4762, 65.7553, 68.9547, 66.2869, 58.9221, 64.2666]
    assert values[14:] == pytest.approx(answers, abs=5e-5)
