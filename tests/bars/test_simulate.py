"""In: the simulated market. Out: its bars are lawful, and its statistics are what is stated."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, date, datetime
from math import log, sqrt

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from klinepred.bars.check import check_bars
from klinepred.bars.clean import clean
from klinepred.bars.sources.simulate import simulate
from klinepred.calendar import Clock, grid
from klinepred.errors import CalendarError
from klinepred.schema import BAR_SCHEMA
from klinepred.settings import SimulateSettings
from tests.bars.markets import NOISE, YEAR, correlation, measured, simulated

NYSE = Clock("XNYS")
SMALL = SimulateSettings(symbols=3, start=date(2026, 2, 20), end=date(2026, 3, 12))


# --- lawful bars -----------------------------------------------------------------------------------------------------


def test_same_settings_give_the_same_bars_whatever_else_draws_random_numbers() -> None:
    first = simulated(SMALL)
    np.random.default_rng(0).standard_normal(1000)
    together = zip(simulate(SMALL, clock=NYSE), simulate(YEAR, clock=NYSE), strict=False)
    assert pl.concat(one.frame for one, _ in together).equals(first)
    assert not simulated(SMALL.model_copy(update={"seed": 8})).equals(first)


def test_a_later_end_adds_bars_and_changes_none() -> None:
    short, long = simulated(SMALL), simulated(SMALL.model_copy(update={"end": date(2026, 4, 2)}))
    assert long["ts"].max() == datetime(2026, 4, 2, 19, 55, tzinfo=UTC)
    kept = long.filter(pl.col("ts").dt.date() <= SMALL.end)
    assert kept.sort("symbol", "ts").equals(short.sort("symbol", "ts"))


def test_every_symbol_has_every_bar_of_the_calendar_and_no_other() -> None:
    bars = simulated(SMALL)
    wanted = grid(NYSE, datetime(2026, 2, 20, tzinfo=UTC), datetime(2026, 3, 13, tzinfo=UTC))["ts"]
    assert bars.schema == BAR_SCHEMA
    assert bars["symbol"].unique().sort().to_list() == ["SIM001", "SIM002", "SIM003"]
    for _, part in bars.group_by("symbol"):
        assert part["ts"].to_list() == wanted.to_list()


def test_default_span_has_123_full_sessions() -> None:
    # weekdays from 2 January to 30 June 2026 less 19 January, 16 February, 3 April, 25 May and 19 June
    bars = measured(SimulateSettings(symbols=1))
    sessions = bars.group_by("session").len()
    assert sessions.height == 123
    assert sessions["len"].unique().to_list() == [78]
    assert sessions["session"].max() == date(2026, 6, 30)


def test_half_days_are_half_and_end_at_13_h_new_york() -> None:
    bars = measured(SimulateSettings(symbols=2, start=date(2026, 11, 25), end=date(2026, 11, 30)))
    by_day = bars.group_by("session").agg(pl.len() // 2, pl.col("ts").max()).sort("session")
    assert by_day.rows() == [
        (date(2026, 11, 25), 78, datetime(2026, 11, 25, 20, 55, tzinfo=UTC)),
        (date(2026, 11, 27), 42, datetime(2026, 11, 27, 17, 55, tzinfo=UTC)),
        (date(2026, 11, 30), 78, datetime(2026, 11, 30, 20, 55, tzinfo=UTC)),
    ]


def test_lunch_breaks_stop_trading_and_the_signal() -> None:
    # Hong Kong: 09:30-12:00 and 13:00-16:00, 30 and 36 bars
    bars = measured(SimulateSettings(symbols=2, end=date(2026, 1, 30)), calendar="XHKG")
    assert bars.group_by("session", "symbol").len()["len"].unique().to_list() == [66]
    silent = bars.filter(pl.col("signal").is_null())["bar"].unique().sort().to_list()
    assert silent == [0, 30]
    jump = (pl.col("open") / pl.col("close").shift(1).over("symbol")).log()
    after_lunch = bars.with_columns(jump=jump).filter(pl.col("bar") == 30)
    assert (after_lunch["jump"] != 0.0).all()


def test_round_the_clock_market_never_pauses_not_even_between_months() -> None:
    settings = SimulateSettings(symbols=2, start=date(2026, 1, 30), end=date(2026, 2, 2))
    months = [delivery.frame for delivery in simulate(settings, clock=Clock("24/7"))]
    assert [month.height for month in months] == [2 * 2 * 288, 2 * 2 * 288]
    last = months[0].group_by("symbol", maintain_order=True).last()
    first = months[1].group_by("symbol", maintain_order=True).first()
    assert last["close"].to_list() == first["open"].to_list()
    bars = measured(settings, calendar="24/7")
    assert bars["signal"].null_count() == 2, "only the very first bar of each symbol knows nothing"


def test_months_come_one_by_one_each_with_all_symbols() -> None:
    months = [delivery.frame for delivery in simulate(YEAR, clock=NYSE)]
    assert [month["ts"].dt.month().unique().to_list() for month in months] == [[k] for k in range(1, 13)]
    assert all(month["symbol"].n_unique() == 40 for month in months)
    assert all(month.equals(month.sort("symbol", "ts")) for month in months)


def test_bars_pass_the_door_and_none_is_quarantined() -> None:
    for settings in (
        YEAR.model_copy(update={"symbols": 10}),
        SMALL.model_copy(update={"bounce": 0.01, "volatility": 0.1}),
    ):
        bars = simulated(settings).sort("symbol", "ts")
        check_bars(bars, clock=NYSE)
        cleaned = clean(bars, clock=NYSE, now=datetime(2027, 1, 1, tzinfo=UTC))
        assert cleaned.rejects.height == 0
        assert cleaned.bars.height == bars.height


def test_symbols_sort_as_they_count_also_beyond_999() -> None:
    one_day = SimulateSettings(symbols=1001, start=date(2026, 1, 2), end=date(2026, 1, 2))
    names = simulated(one_day)["symbol"].unique(maintain_order=True)
    assert names[0] == "SIM0001"
    assert names.to_list() == names.sort().to_list()


def test_memory_is_that_of_the_month_handed_out_and_the_one_in_the_making() -> None:
    settings = SimulateSettings(symbols=20, start=date(2024, 1, 2), end=date(2024, 1, 31))

    def peak(end: date) -> int:
        tracemalloc.start()
        for delivery in simulate(settings.model_copy(update={"end": end}), clock=NYSE):
            assert delivery.frame.height
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(date(2024, 1, 31))
    assert peak(date(2024, 8, 30)) < 2.5 * peak(date(2024, 1, 31))


def test_spans_without_a_session_are_refused() -> None:
    for start, end in ((date(2026, 1, 3), date(2026, 1, 4)), (date(2090, 1, 1), date(2090, 6, 1))):
        with pytest.raises(CalendarError, match="a session between"):
            next(simulate(SimulateSettings(start=start, end=end), clock=NYSE))
    with pytest.raises(ValidationError, match="must not lie after end"):
        SimulateSettings(start=date(2026, 1, 3), end=date(2026, 1, 2))


def test_one_symbol_alone_has_no_market_factor_and_says_so() -> None:
    delivery = next(simulate(SimulateSettings(symbols=1), clock=NYSE))
    assert "no market factor" in delivery.remarks[0]
    alone = measured(SimulateSettings(symbols=1, ic=0.3, end=date(2027, 12, 31)))
    assert alone.select((pl.col("sd") - pl.col("own_sd")).abs().max()).item() == 0.0
    found, error = correlation(alone, "signal", "r")
    assert found == pytest.approx(0.3, abs=4 * error)


# --- stylised facts --------------------------------------------------------------------------------------------------


def test_volatility_and_volume_are_u_shaped_through_the_day() -> None:
    inside = (pl.col("close") / pl.col("open")).log()
    by_bar = measured(YEAR).group_by("bar").agg(sd=(inside**2).mean().sqrt(), volume=pl.col("volume").mean())
    day = by_bar.sort("bar").filter(pl.col("bar") < 78)
    for name in ("sd", "volume"):
        first, noon, last = (day[name][a:b].mean() for a, b in ((0, 3), (35, 43), (75, 78)))
        assert isinstance(first, float)
        assert isinstance(noon, float)
        assert isinstance(last, float)
        assert first > 1.5 * noon
        assert last > 1.2 * noon


def test_daily_volatility_is_the_one_asked_for_and_a_quarter_of_it_comes_overnight() -> None:
    table = measured(YEAR).with_columns(
        gap=(pl.col("open") / pl.col("close").shift(1).over("symbol")).log(),
        inside=(pl.col("close") / pl.col("open")).log(),
    )
    night = table.filter(pl.col("bar") == 0).select((pl.col("gap") ** 2).mean()).item()
    day = table.group_by("symbol", "session").agg(pl.col("inside").sum()).select((pl.col("inside") ** 2).mean()).item()
    # a common market factor leaves about 250 independent days of fat-tailed, clustered squares
    assert sqrt(night + day) == pytest.approx(0.018, rel=0.12)
    assert night / (night + day) == pytest.approx(0.25, abs=0.06)


def test_absolute_returns_cluster_and_forget_slowly() -> None:
    table = measured(NOISE).with_columns(
        flat=pl.col("step") / (pl.col("step") ** 2).mean().sqrt().over("bar", "symbol")
    )
    size = table.with_columns(size=pl.col("flat").abs())
    found = []
    for lag in (1, 12, 78, 390):
        pairs = size.with_columns(before=pl.col("size").shift(lag).over("symbol"))
        found.append(correlation(pairs, "size", "before")[0])
    assert found[0] > 0.08
    assert found[0] > found[1] > found[2] > found[3]
    assert found[2] > 0.03, "still there a day later"


def test_tails_are_fat_and_finite() -> None:
    # a shock is a normal times exp(0.35 x - 0.35^2): kurtosis 3 exp(4 * 0.35^2) = 4.9; GARCH adds to it
    shocks = measured(NOISE)["shock"]
    assert shocks.kurtosis(fisher=False) == pytest.approx(3 * np.exp(4 * 0.35**2), rel=0.1)
    returns = measured(NOISE).filter(pl.col("bar") > 0)["step"].kurtosis(fisher=False)
    assert returns is not None
    assert 5 < returns < 100


def test_a_common_factor_brings_the_stated_share_with_a_beta_of_its_own_per_symbol() -> None:
    table = measured(YEAR).drop_nulls("step")
    market = table.with_columns(market=pl.col("step").mean().over("ts"))
    fits = market.group_by("symbol").agg(
        beta=pl.cov("step", "market") / pl.col("market").var(), share=pl.corr("step", "market") ** 2
    )
    share = market.select(pl.col("market").var() / pl.col("step").var()).item()
    assert share == pytest.approx(0.25, abs=0.07)
    assert fits["beta"].mean() == pytest.approx(1.0, abs=1e-9)
    assert 0.1 < float(fits["beta"].std()) < 0.35  # type: ignore[arg-type]
    assert fits["share"].min() > 0.05  # type: ignore[operator]


def test_ranges_agree_with_returns() -> None:
    # Parkinson: E[(ln high/low)^2] = 4 ln 2 sigma^2; high and low are drawn one by one, which widens it by under 4 %
    inside = measured(NOISE).select(
        parkinson=((pl.col("high") / pl.col("low")).log() ** 2).mean() / (4 * log(2)),
        closes=((pl.col("close") / pl.col("open")).log() ** 2).mean(),
    )
    assert inside["parkinson"][0] / inside["closes"][0] == pytest.approx(1.02, abs=0.04)


def test_volume_is_whole_positive_and_moves_with_the_size_of_returns() -> None:
    table = measured(YEAR).with_columns(size=pl.col("r").abs())
    assert (table["volume"] >= 1.0).all()
    assert (table["volume"] == table["volume"].round()).all()
    flat = table.with_columns(v=pl.col("volume").log() - pl.col("volume").log().mean().over("symbol", "bar"))
    found, _ = correlation(flat, "v", "size")
    assert found > 0.15


def test_zero_volume_comes_only_when_asked_for_and_changes_no_price() -> None:
    plain = simulated(SMALL)
    gaps = simulated(SMALL.model_copy(update={"zero_volume": 0.2}))
    share = (gaps["volume"] == 0.0).sum() / gaps.height
    assert share == pytest.approx(0.2, abs=4 * sqrt(0.16 / gaps.height))
    assert gaps.drop("volume").equals(plain.drop("volume"))
    assert (plain["volume"] > 0.0).all()


def test_rounding_keeps_six_significant_digits_at_any_price() -> None:
    wild = SimulateSettings(symbols=20, start=date(2020, 1, 2), end=date(2021, 12, 31), volatility=0.12)
    bars = simulated(wild)
    assert bars["low"].min() > 0.0  # type: ignore[operator]
    cheap = bars.filter(pl.col("close") < 0.5)
    assert cheap.height > 1000, "the setting must reach low prices for the test to mean something"
    moved = cheap.select((pl.col("close") != pl.col("open")).mean()).item()
    assert moved > 0.995
