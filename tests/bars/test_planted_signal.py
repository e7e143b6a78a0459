"""In: the simulated market. Out: its bars can be foretold as well as is stated, and those of noise not at all."""

from __future__ import annotations

from datetime import date
from math import sqrt

import numpy as np
import polars as pl
import pytest

from klinepred.bars.sources.planted import Floats, bounce_ic, linear_share, signal_variance
from klinepred.bars.sources.simulate import planted_forecast
from klinepred.calendar import Clock
from klinepred.settings import SimulateSettings
from tests.bars.markets import NOISE, YEAR, correlation, measured, simulated

NYSE = Clock("XNYS")
SMALL = SimulateSettings(symbols=3, start=date(2026, 2, 20), end=date(2026, 3, 12))


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
