"""In: the simulated market. Out: its bars are lawful, its statistics and its predictability are what is stated."""

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
from klinepred.bars.sources.planted import Floats, bounce_ic, linear_share, signal_variance
from klinepred.bars.sources.simulate import planted_forecast, simulate
from klinepred.calendar import Clock, grid
from klinepred.errors import CalendarError
from klinepred.schema import BAR_SCHEMA
from klinepred.settings import SimulateSettings
from tests.bars.markets import measured, simulated

NYSE = Clock("XNYS")
SMALL = SimulateSettings(symbols=3, start=date(2026, 2, 20), end=date(2026, 3, 12))
YEAR = SimulateSettings(symbols=40, start=date(2025, 1, 2), end=date(2025, 12, 31), ic=0.06)
NOISE = YEAR.model_copy(update={"ic": 0.0, "seed": 11})


def correlation(table: pl.DataFrame, one: str, other: str) -> tuple[float, float]:
    """Pearson correlation and its standard error where there is none."""
    pairs = table.select(one, other).drop_nulls()
    return float(pairs.select(pl.corr(one, other)).item()), 1.0 / sqrt(pairs.height)


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


# --- the planted signal ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        YEAR,
        YEAR.model_copy(update={"ic": 0.3, "volume_tilt": 1.5, "decay": 0.8, "symbols": 5}),
        YEAR.model_copy(update={"ic": 0.2, "volume_tilt": 0.0, "symbols": 2}),
        YEAR.model_copy(update={"ic": 0.5, "decay": 0.0, "market": 0.0, "overnight": 0.0}),
    ],
)
def test_the_best_forecast_has_the_stated_ic(settings: SimulateSettings) -> None:
    table = measured(settings).drop_nulls("signal")
    own, error = correlation(table, "signal", "shock")
    assert own == pytest.approx(settings.ic, abs=4 * error), "against the symbol's own return"
    # the relative return keeps a little of the market, since betas differ: a few per cent of the IC at most
    relative, _ = correlation(table, "signal", "rel")
    assert relative == pytest.approx(settings.ic, abs=4 * error + 0.03 * settings.ic), "against the relative return"
    raw, _ = correlation(table, "signal", "r")
    stated = settings.ic * table.select((pl.col("own_sd") / pl.col("sd")).mean()).item()
    assert raw == pytest.approx(stated, abs=4 * error), "against the raw return"
    if settings.market:
        assert stated == pytest.approx(settings.ic * sqrt(1.0 - settings.market), rel=0.05)


def test_the_signal_has_unit_variance_at_every_bar_of_the_session() -> None:
    table = measured(YEAR.model_copy(update={"ic": 0.3, "volume_tilt": 1.0, "decay": 0.8})).drop_nulls("signal")
    assert table.select(pl.col("signal").var()).item() == pytest.approx(1.0, abs=0.02)
    by_bar = table.filter(pl.col("bar") < 42).group_by("bar").agg(pl.col("signal").var()).sort("bar")
    assert by_bar["bar"].to_list() == list(range(1, 42))
    # 40 x 250 signals with fat tails per bar
    assert by_bar.select((pl.col("signal") - 1.0).abs().max()).item() < 0.12
    assert abs(float(table["signal"].mean())) < 1e-9, "centred over the cross-section"  # type: ignore[arg-type]
    assert table.select(pl.col("shock").var()).item() == pytest.approx(1.0, abs=0.02)


def test_variance_recursion_equals_a_simulation_of_it() -> None:
    rng, paths, ic, decay = np.random.default_rng(3), 400_000, 0.4, 0.7
    wanted = signal_variance(6, ic=ic, decay=decay, volume_tilt=0.0, symbols=1, first=0.0)
    collected = np.zeros(paths)
    for bar in range(6):
        assert np.var(collected) == pytest.approx(wanted[bar], rel=0.01)
        drift = -ic * collected / sqrt(wanted[bar]) if bar else 0.0
        collected = decay * collected + drift + sqrt(1 - ic**2 if bar else 1.0) * rng.standard_normal(paths)


def test_the_signal_can_be_worked_out_from_prices_volumes_and_volatilities() -> None:
    settings = YEAR.model_copy(update={"symbols": 20})
    table = measured(settings).filter(pl.col("session_bars") == 78)
    # volume against what is usual for symbol, bar and volatility; its log spreads by 0.6
    table = table.with_columns(v=pl.col("volume").log() - pl.col("own_sd").log())
    table = table.with_columns(w=(pl.col("v") - pl.col("v").mean().over("symbol", "bar")) / 0.6)
    inside = (pl.col("close") / pl.col("open")).log() / pl.col("sd")
    table = table.with_columns(u=inside - inside.mean().over("ts"))
    table = table.with_columns(c=(1.0 + settings.volume_tilt * pl.col("w")) * pl.col("u"))
    table = table.with_columns(c=pl.col("c") - pl.col("c").mean().over("ts"))
    terms = [pl.col("c").shift(lag) * settings.decay ** (lag - 1) for lag in range(1, 9)]
    guess = -sum(terms[1:], terms[0])
    table = table.with_columns(guess=guess.over("symbol", "session")).drop_nulls("guess")
    found, _ = correlation(table, "guess", "signal")
    assert found > 0.97


def test_the_forecast_knows_nothing_of_later_bars() -> None:
    short = pl.concat(planted_forecast(SMALL, clock=NYSE))
    long = pl.concat(planted_forecast(SMALL.model_copy(update={"end": date(2026, 3, 20)}), clock=NYSE))
    kept = long.filter(pl.col("ts") <= short["ts"].max()).sort("symbol", "ts")
    assert kept.equals(short.sort("symbol", "ts"))
    # within a bar: the shock of a bar moves the signal of the bars after it, never its own
    table = measured(NOISE)
    same, error = correlation(table, "signal", "shock")
    after, _ = correlation(
        table.with_columns(later=pl.col("signal").shift(-1).over("symbol", "segment")), "later", "shock"
    )
    assert abs(same) < 4 * error
    assert after < -0.5


def ridge_ic(table: pl.DataFrame, names: list[str]) -> tuple[float, float]:
    """Out-of-sample IC of a ridge regression, fitted to the first 70 % of the sessions, and its standard error."""
    rows = table.drop_nulls([*names, "y"])
    border = rows["session"].unique().sort()[int(0.7 * rows["session"].n_unique())]
    early, late = rows.filter(pl.col("session") < border), rows.filter(pl.col("session") >= border)
    x, y = early.select(names).to_numpy(), early["y"].to_numpy()
    weights: Floats = np.linalg.solve(x.T @ x + 10.0 * np.eye(len(names)), x.T @ y)
    scored = late.select("y", guess=pl.lit(late.select(names).to_numpy() @ weights))
    return correlation(scored, "guess", "y")


def past_returns(table: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Relative returns of the last six bars, and the next one, in units of trailing volatility: what anyone has."""
    vol = pl.col("step").rolling_std(156, min_samples=60).over("symbol")
    table = table.with_columns(z=(pl.col("step") / vol.shift(1).over("symbol")).clip(-6, 6))
    table = table.with_columns(z=pl.col("z") - pl.col("z").mean().over("ts"))
    lags = {f"lag{k}": pl.col("z").shift(k).over("symbol", "session").fill_null(0.0) for k in range(6)}
    return table.with_columns(**lags, y=pl.col("z").shift(-1).over("symbol", "session")), list(lags)


def test_a_ridge_on_past_returns_recovers_most_of_the_planted_ic_out_of_sample() -> None:
    found, error = ridge_ic(*past_returns(measured(YEAR)))
    assert found > 0.6 * YEAR.ic + error
    assert found < YEAR.ic + 3 * error, "nothing can beat the best forecast"


def test_a_linear_model_cannot_reach_the_part_of_volume_times_return() -> None:
    tilted = NOISE.model_copy(update={"volume_tilt": 1.0})
    table = measured(tilted)
    terms = [pl.col("shock").shift(lag) * tilted.decay ** (lag - 1) for lag in range(1, 9)]
    linear = table.with_columns(linear=-sum(terms[1:], terms[0])).filter(pl.col("bar") > 8)
    found, _ = correlation(linear, "linear", "signal")
    assert found == pytest.approx(linear_share(1.0), abs=0.02)
    assert linear_share(0.0) == 1.0


# --- bid-ask bounce and noise ----------------------------------------------------------------------------------------


def test_bounce_puts_closes_on_bid_or_ask_of_the_same_mid_prices() -> None:
    mids, quotes = simulated(SMALL), simulated(SMALL.model_copy(update={"bounce": 0.001}))
    off = quotes["close"] / mids["close"] - 1.0
    assert (off.abs() - 0.001).abs().max() < 5e-6, "a price above 20 rounded to 4 decimals"  # type: ignore[operator]
    assert abs(float((off > 0).mean()) - 0.5) < 4 * 0.5 / sqrt(off.len())  # type: ignore[arg-type]


def test_bounce_implies_the_stated_ic() -> None:
    half = 0.0008
    settings = NOISE.model_copy(update={"bounce": half, "market": 0.0})
    bounced, mids = measured(settings), measured(settings.model_copy(update={"bounce": 0.0}))
    late = bounced.with_columns(**{f"lag{k}": pl.col("step").shift(k).over("symbol", "segment") for k in range(1, 10)})
    rows = late.drop_nulls(["step", "lag9"])
    steps = rows.select("step", "lag1")
    error = 1.0 / sqrt(steps.height)
    assert steps.select(pl.cov("step", "lag1")).item() == pytest.approx(-(half**2), rel=0.05), "Roll (1984)"
    kept = mids.join(rows.select("symbol", "ts"), on=["symbol", "ts"], how="semi")
    lag_one, best = bounce_ic(half, float(kept["step"].std()))  # type: ignore[arg-type]
    assert steps.select(pl.corr("step", "lag1")).item() == pytest.approx(-lag_one, abs=6 * error)
    x = rows.select(f"lag{k}" for k in range(1, 10)).to_numpy()
    fit = x @ np.linalg.lstsq(x, rows["step"].to_numpy(), rcond=None)[0]
    assert np.corrcoef(fit, rows["step"].to_numpy())[0, 1] == pytest.approx(best, abs=6 * error)
    assert rows.select(pl.corr("step", "lag2")).item() == pytest.approx(0.0, abs=6 * error)


def test_bounce_formula_by_hand() -> None:
    # sigma = c: variance 3, autocovariance -1; MA(1) with theta (3 - sqrt 5) / 2, best IC sqrt(1 - (3 + sqrt 5) / 6)
    lag_one, best = bounce_ic(0.001, 0.001)
    assert lag_one == pytest.approx(1 / 3)
    assert best == pytest.approx(sqrt(1 - (3 + sqrt(5)) / 6))
    assert bounce_ic(0.0, 0.001) == (0.0, 0.0)


def test_noise_market_has_no_lagged_autocorrelation() -> None:
    table = measured(NOISE)
    for name in ("r", "rel", "shock"):
        for lag in range(1, 11):
            pairs = table.with_columns(before=pl.col(name).shift(lag).over("symbol", "segment"))
            found, error = correlation(pairs, name, "before")
            assert abs(found) < 4 * error, f"{name} at lag {lag}"


def test_noise_market_lets_no_symbol_foretell_another() -> None:
    table = measured(NOISE).filter(pl.col("signal").is_not_null())
    wide = table.pivot(on="symbol", index="ts", values="r").sort("ts")
    times = wide["ts"]
    next_to = np.diff(times.to_physical().to_numpy()) == 300_000_000
    r = wide.drop("ts").to_numpy()
    now, after = r[:-1][next_to], r[1:][next_to]
    now, after = (now - now.mean(0)) / now.std(0), (after - after.mean(0)) / after.std(0)
    t = now.T @ after / sqrt(len(now))
    # the common factor makes the 1,600 statistics depend on each other
    assert abs(t.mean()) < 2.0
    assert (t**2).mean() == pytest.approx(1.0, abs=0.6)
    assert abs(t).max() < 5.0


def test_noise_market_gives_a_ridge_nothing() -> None:
    found, error = ridge_ic(*past_returns(measured(NOISE)))
    assert abs(found) < 4 * error
