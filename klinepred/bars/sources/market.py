"""In: settings of the simulated market, one stretch of trading after another. Out: its bars and what drove them."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np

from klinepred.bars.sources.planted import MIX, MIX_VOLUME, Floats, signal_variance
from klinepred.settings import SimulateSettings

# Shapes: T bars of a stretch, S symbols, K = 1 + S factors (column 0 is the market).

NEWS: Final = 0.04
"""GARCH(1,1) weight of the last squared shock, per bar."""
MEMORY: Final = 0.955
"""GARCH(1,1) weight of the last variance, per bar: half-life of a burst of volatility about 140 bars."""
VOLUME_SPREAD: Final = 0.6
"""Standard deviation of the log abnormal volume."""
LUNCH: Final = 0.1
"""Variance of a break within a session, relative to that between two sessions."""
_PARAMETERS: Final = 0x5EED


@dataclass(frozen=True)
class Stretch:
    """Uninterrupted trading: `bars` bars from `open_us` (microseconds UTC).

    `first_bar` counts from the session's open, `session_bars` are those of the whole session; `gap` is what lies
    before it: nothing ("none"), a break within the session ("lunch") or the hours between two sessions ("night").
    """

    open_us: int
    bars: int
    first_bar: int
    session_bars: int
    gap: str


@dataclass(frozen=True)
class Profile:
    """Constants of one market: per symbol its parameters, per full session the scale of the day's shape."""

    symbols: int
    beta_S: Floats
    market_sd: float
    """Standard deviation of the market factor's log return in an average bar."""
    own_S: Floats
    """The same of each symbol's own part."""
    night: float
    """Standard deviation of the return between two sessions over that of an average bar."""
    log_price_S: Floats
    log_volume_S: Floats
    round_the_clock: bool
    shape: float
    """Root mean square of the raw volatility shape over a full session."""
    volume_shape: float


@dataclass
class State:
    """What one stretch hands to the next: GARCH variances, the unscaled signal and its variance, log mid prices."""

    garch_K: Floats
    signal_S: Floats
    variance: float
    log_price_S: Floats


@dataclass(frozen=True)
class Traded:
    """The bars of one stretch and their causes, all [T, S] but `known_T`.

    `signal_TS` (standard deviation 1, known before the bar opens) times `ic` is the expected value of
    `shock_TS`, the bar's own return over `own_sd_TS`; `sd_TS` is the deviation of the whole log return, both known
    before the bar opens. Where `known_T` is False (first bar after a break) there is no signal.
    """

    prices: tuple[Floats, Floats, Floats, Floats]
    volume_TS: Floats
    signal_TS: Floats
    shock_TS: Floats
    own_sd_TS: Floats
    sd_TS: Floats
    known_T: np.ndarray[tuple[int], np.dtype[np.bool_]]


def open_market(settings: SimulateSettings, *, full_session: int, round_the_clock: bool) -> tuple[Profile, State]:
    """Draw the symbols' parameters; `full_session` is the number of bars of a session that is not cut short."""
    draws = _generator(settings.seed, _PARAMETERS).standard_normal((settings.symbols, 4))
    n = settings.symbols
    market = settings.market if n > 1 else 0.0
    overnight = 0.0 if round_the_clock else settings.overnight
    bar_sd = settings.volatility * sqrt((1.0 - overnight) / full_session)
    x = (np.arange(full_session) + 0.5) / full_session
    log_price = np.log(80.0) + 0.6 * draws[:, 2]
    profile = Profile(
        symbols=n,
        beta_S=np.exp(0.2 * draws[:, 0] - 0.02),
        market_sd=bar_sd * sqrt(market),
        own_S=bar_sd * sqrt(1.0 - market) * np.exp(0.2 * draws[:, 1] - 0.02),
        night=sqrt(overnight / (1.0 - overnight) * full_session),
        log_price_S=log_price,
        log_volume_S=np.log(40_000.0) + 0.8 * draws[:, 3],
        round_the_clock=round_the_clock,
        shape=float(np.sqrt(np.mean(_volatility_shape(x, round_the_clock) ** 2))),
        volume_shape=float(np.mean(_volume_shape(x, round_the_clock))),
    )
    return profile, State(np.ones(n + 1), np.zeros(n), 0.0, log_price.copy())


def trade(stretch: Stretch, state: State, profile: Profile, settings: SimulateSettings) -> Traded:
    """Simulate one stretch of trading; `state` is moved on to its end.

    All random numbers come from a generator seeded by (seed, open of the stretch), so that a stretch depends on what
    came before it through `state` alone, never on how long the simulation will go on.
    """
    bars, n = stretch.bars, profile.symbols
    random = _generator(settings.seed, 1 + stretch.open_us // 60_000_000)
    x = (stretch.first_bar + np.arange(bars) + 0.5) / stretch.session_bars
    shape_T = _volatility_shape(x, profile.round_the_clock) / profile.shape
    volume_T = _volume_shape(x, profile.round_the_clock) / profile.volume_shape

    news_TK = random.standard_normal((bars, n + 1))
    mix_TK = np.exp(MIX * news_TK - MIX**2)
    abnormal_TS = MIX_VOLUME * news_TK[:, 1:] + sqrt(1.0 - MIX_VOLUME**2) * random.standard_normal((bars, n))
    shock_TK = random.standard_normal((bars, n + 1)) * mix_TK
    if stretch.gap != "none":
        _jump(random, stretch, state, profile)

    var_T1 = signal_variance(
        bars,
        ic=settings.ic,
        decay=settings.decay,
        volume_tilt=settings.volume_tilt,
        symbols=n,
        first=state.variance,
    )
    known_T = var_T1[:-1] > 0.0
    ic_T = np.where(known_T, settings.ic, 0.0)
    spread_TS = mix_TK[:, 1:] ** 2
    if n > 1:
        # shocks of a cross-section sum to zero: what is common to all is the market factor's by definition
        scale = n / (n - 1)
        shock_TK[:, 1:] -= shock_TK[:, 1:].mean(axis=1, keepdims=True)
        shock_TK[:, 1:] *= sqrt(scale)
        spread_TS = scale * ((1.0 - 2.0 / n) * spread_TS + spread_TS.mean(axis=1, keepdims=True) / n)
    shock_TK[:, 1:] *= np.sqrt(1.0 - ic_T**2)[:, None]
    garch_TK, signal_TS = _recurse(shock_TK, 1.0 + settings.volume_tilt * abnormal_TS, ic_T, var_T1, state, settings)

    sd_TK = np.sqrt(garch_TK) * shape_T[:, None]
    own_sd_TS = sd_TK[:, 1:] * profile.own_S
    market_sd_TS = sd_TK[:, :1] * (profile.market_sd * profile.beta_S)
    return_TS = market_sd_TS * shock_TK[:, :1] + own_sd_TS * shock_TK[:, 1:]
    path_var_TS = (market_sd_TS * mix_TK[:, :1]) ** 2 + own_sd_TS**2 * spread_TS * (1.0 - ic_T**2)[:, None]
    prices = _prices(random, return_TS, path_var_TS, state, settings)

    log_volume_TS = VOLUME_SPREAD * abnormal_TS - VOLUME_SPREAD**2 / 2.0 + 0.5 * np.log(garch_TK[:, 1:])
    log_volume_TS += profile.log_volume_S + np.log(volume_T)[:, None]
    volume_TS = np.maximum(np.rint(np.exp(log_volume_TS)), 1.0)
    if settings.zero_volume > 0.0:
        volume_TS[random.random((bars, n)) < settings.zero_volume] = 0.0
    sd_TS = np.sqrt(market_sd_TS**2 + own_sd_TS**2)
    return Traded(prices, volume_TS, signal_TS, shock_TK[:, 1:], own_sd_TS, sd_TS, known_T)


def _recurse(
    shock_TK: Floats, tilt_TS: Floats, ic_T: Floats, var_T1: Floats, state: State, settings: SimulateSettings
) -> tuple[Floats, Floats]:
    """Run GARCH variances and the planted signal through the bars; `shock_TK` gets its signal part added in place."""
    bars, factors = shock_TK.shape
    garch_TK, signal_TS = np.empty((bars, factors)), np.empty((bars, factors - 1))
    garch_K, signal_S = state.garch_K, state.signal_S
    if var_T1[0] == 0.0:
        signal_S[:] = 0.0
    scale_T = np.zeros(bars)
    np.divide(-1.0, np.sqrt(var_T1[:-1]), out=scale_T, where=var_T1[:-1] > 0.0)
    squared_K, entering_S = np.empty(factors), np.empty(factors - 1)
    base = 1.0 - NEWS - MEMORY
    for t in range(bars):
        shock_K, tilted_S = shock_TK[t], tilt_TS[t]
        own_S = shock_K[1:]
        garch_TK[t] = garch_K
        np.multiply(signal_S, scale_T[t], out=signal_TS[t])
        np.multiply(signal_TS[t], ic_T[t], out=entering_S)
        own_S += entering_S
        np.multiply(own_S, tilted_S, out=entering_S)
        if factors > 2:
            entering_S -= np.add.reduce(entering_S) / (factors - 1)
        signal_S *= settings.decay
        signal_S += entering_S
        np.multiply(shock_K, shock_K, out=squared_K)
        squared_K *= NEWS
        squared_K += MEMORY
        garch_K *= squared_K
        garch_K += base
    state.variance = float(var_T1[bars])
    return garch_TK, signal_TS


def _jump(random: np.random.Generator, stretch: Stretch, state: State, profile: Profile) -> None:
    """Move the log prices over a market break; the signal starts afresh after it."""
    news_K, mix_K = random.standard_normal((2, profile.symbols + 1))
    size = profile.night * (sqrt(LUNCH) if stretch.gap == "lunch" else 1.0)
    gap_K = size * np.sqrt(state.garch_K) * news_K * np.exp(MIX * mix_K - MIX**2)
    state.log_price_S += profile.market_sd * profile.beta_S * gap_K[0] + profile.own_S * gap_K[1:]
    state.variance = 0.0


def _prices(
    random: np.random.Generator, return_TS: Floats, path_var_TS: Floats, state: State, settings: SimulateSettings
) -> tuple[Floats, Floats, Floats, Floats]:
    """Open, high, low, close: extremes of Brownian bridges between open and close, rounded, with bid-ask bounce."""
    close_TS = np.cumsum(return_TS, axis=0)
    close_TS += state.log_price_S
    open_TS = np.concatenate([state.log_price_S[None], close_TS[:-1]])
    # at least 4 decimals, and never fewer than 6 significant digits
    digits_S = np.maximum(1.0 - np.floor(state.log_price_S / np.log(10.0)), 0.0)
    scale_S = 1e4 * np.rint(10.0**digits_S)
    state.log_price_S = close_TS[-1].copy()
    middle_TS, square_TS = (open_TS + close_TS) / 2.0, return_TS**2
    high_TS, low_TS = (
        np.sqrt(square_TS + 2.0 * path_var_TS * random.standard_exponential(return_TS.shape)) for _ in range(2)
    )
    paths = [open_TS, middle_TS + high_TS / 2.0, middle_TS - low_TS / 2.0, close_TS]
    opens, highs, lows, closes = (np.exp(path, out=path) for path in paths)
    if settings.bounce > 0.0:
        side_TS = random.integers(0, 2, size=(2, *return_TS.shape), dtype=np.int8) * 2 - 1
        opens *= 1.0 + settings.bounce * side_TS[0]
        closes *= 1.0 + settings.bounce * side_TS[1]
        highs *= 1.0 + settings.bounce
        lows *= 1.0 - settings.bounce
    for path in (opens, highs, lows, closes):
        path *= scale_S
        np.rint(path, out=path)
        path /= scale_S
    np.maximum(highs, np.maximum(opens, closes), out=highs)
    np.minimum(lows, np.minimum(opens, closes), out=lows)
    return opens, highs, lows, closes


def _volatility_shape(x: Floats, round_the_clock: bool) -> Floats:
    """Standard deviation of a bar at the share x of its session: a U, or a wave with its top at 15:00 UTC."""
    if round_the_clock:
        return 1.0 + 0.3 * np.cos(2.0 * np.pi * (x - 0.625))
    return 0.75 + 1.25 * np.exp(-x / 0.08) + 0.45 * np.exp(-(1.0 - x) / 0.08)


def _volume_shape(x: Floats, round_the_clock: bool) -> Floats:
    if round_the_clock:
        return 1.0 + 0.5 * np.cos(2.0 * np.pi * (x - 0.625))
    return 0.7 + 1.3 * np.exp(-x / 0.08) + 1.2 * np.exp(-(1.0 - x) / 0.06)


def _generator(seed: int, key: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence((seed, key))))
