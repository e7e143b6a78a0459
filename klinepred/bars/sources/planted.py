"""In: the simulated market's settings. Out: closed forms of what can be predicted there, and how well."""

from __future__ import annotations

from math import sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MIX: Final = 0.35
"""Spread of the log volatility of one bar's news (tau): a shock is `normal * exp(MIX * x - MIX**2)`, x ~ N(0, 1)."""
MIX_VOLUME: Final = 0.8
"""Correlation of x with the bar's abnormal volume: news moves prices and volume alike (Clark 1973)."""


def signal_variance(bars: int, *, ic: float, decay: float, volume_tilt: float, symbols: int, first: float) -> Floats:
    """Variance of the unscaled planted signal before each bar of a stretch of trading.

    The signal collects the shocks u of the bars since the last market break, `A <- decay A + C` with
    `C = (1 + volume_tilt w) u` minus its cross-sectional mean; w is the abnormal volume. The next shock is
    `u = -ic A / sqrt(var A) + sqrt(1 - ic^2) eta`, so that `var A' = decay^2 var A - 2 decay ic sqrt(var A) + var C`.

    Parameters
    ----------
    bars
        Length of the stretch.
    first
        Variance of A before its first bar; 0 after a break, when nothing is known.

    Returns
    -------
    numpy.ndarray
        [bars + 1]; the last one is what the following stretch starts from where no break lies between.
    """
    plain = shock_variance(ic=0.0, volume_tilt=volume_tilt, symbols=symbols)
    steered = shock_variance(ic=ic, volume_tilt=volume_tilt, symbols=symbols)
    out = np.empty(bars + 1)
    variance = first
    for bar in range(bars):
        out[bar] = variance
        entering = steered if variance > 0.0 else plain
        variance = decay**2 * variance - 2.0 * decay * ic * sqrt(variance) + entering
    out[bars] = variance
    return out


def shock_variance(*, ic: float, volume_tilt: float, symbols: int) -> float:
    """Variance of C, the volume-tilted and centred shock that enters the signal (see `signal_variance`).

    Notes
    -----
    With g = 1 + volume_tilt w, lean = 2 MIX MIX_VOLUME: E[g eta^2] = 1 + volume_tilt lean and
    E[g^2 eta^2] = 1 + 2 volume_tilt lean + volume_tilt^2 (1 + lean^2), since weighting by exp(2 MIX x) moves the mean
    of x to 2 MIX. The shocks of a cross-section of n symbols are centred (sum 0) and rescaled to variance 1, which
    makes every pair correlate by -1 / (n - 1).
    """
    n, tilt, lean = symbols, volume_tilt, 2.0 * MIX * MIX_VOLUME
    g2 = 1.0 + tilt**2
    g_eta2 = 1.0 + tilt * lean
    g2_eta2 = 1.0 + 2.0 * tilt * lean + tilt**2 * (1.0 + lean**2)
    if n == 1:
        return ic**2 * g2 + (1.0 - ic**2) * g2_eta2
    own = n / (n - 1) * ((1.0 - 1.0 / n) ** 2 * g2_eta2 + (n - 1) / n**2 * g2)
    pair = n / (n - 1) * (-2.0 * g_eta2 / n + (2.0 * g_eta2 + n - 2) / n**2)
    own = ic**2 * g2 + (1.0 - ic**2) * own
    pair = -(ic**2) / (n - 1) + (1.0 - ic**2) * pair
    return (1.0 - 1.0 / n) * (own - pair)


def linear_share(volume_tilt: float) -> float:
    """Share of the planted IC that a model linear in past returns can reach; the rest needs volume times return.

    The signal's part without volume correlates with the whole by this much: per lag, E[u C] / sqrt(var C), in the
    limit of many symbols and a small IC.
    """
    lean = 2.0 * MIX * MIX_VOLUME
    return (1.0 + volume_tilt * lean) / sqrt(1.0 + 2.0 * volume_tilt * lean + volume_tilt**2 * (1.0 + lean**2))


def bounce_ic(half_spread: float, volatility: float) -> tuple[float, float]:
    """How well returns between closes that jump between bid and ask forecast the next one, without any other signal.

    Roll (1984): with mid returns of standard deviation sigma and half-spread c, R = r + c (q - q_before) has variance
    sigma^2 + 2 c^2 and lag-1 autocovariance -c^2, nothing beyond: an MA(1).

    Parameters
    ----------
    half_spread
        c, as a share of the price.
    volatility
        sigma of the log return of one bar's mid price.

    Returns
    -------
    tuple[float, float]
        IC of the last return with turned sign, c^2 / (sigma^2 + 2 c^2), and IC of the best linear forecast from all
        past returns, sqrt(1 - innovation variance / variance).
    """
    total = volatility**2 + 2.0 * half_spread**2
    innovation = (total + sqrt(total**2 - 4.0 * half_spread**4)) / 2.0
    return half_spread**2 / total, sqrt(max(0.0, 1.0 - innovation / total))
