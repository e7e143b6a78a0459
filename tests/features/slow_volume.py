"""In: bars of one symbol with their places, returns of a cross-section. Out: volume, clock, cross features by loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from tests.features.slow import Number, Tape, average, last, log_of, ratio


def same_time(t: Tape, i: int) -> Number:
    days = sorted(set(t.session[: i + 1]))
    wanted = set(days[-21:-1])
    usual = average([t.v[k] for k in range(i) if t.session[k] in wanted and t.bar[k] == t.bar[i]], 1)
    return log_of(ratio(t.v[i], usual))


def z_score(t: Tape, i: int) -> Number:
    window = last(t.v, i, 78)
    middle = fmean(window)
    return ratio(t.v[i] - middle, math.sqrt(fmean([(v - middle) ** 2 for v in window])))


def obv_slope(t: Tape, i: int) -> Number:
    window = range(max(1, i - 23), i + 1)
    signed = sum(t.v[k] * ((t.c[k] > t.c[k - 1]) - (t.c[k] < t.c[k - 1])) for k in window)
    return ratio(signed, sum(last(t.v, i, 24)))


def money_flow(t: Tape, i: int) -> Number:
    flow = 0.0
    for k in range(max(0, i - 19), i + 1):
        if t.h[k] > t.l[k]:
            flow += t.v[k] * ((t.c[k] - t.l[k]) - (t.h[k] - t.c[k])) / (t.h[k] - t.l[k])
    return ratio(flow, sum(last(t.v, i, 20)))


def session_vwap(t: Tape, i: int) -> Number:
    mine = [k for k in range(i + 1) if t.session[k] == t.session[i]]
    value = sum((t.h[k] + t.l[k] + t.c[k]) / 3.0 * t.v[k] for k in mine)
    return ratio(value, sum(t.v[k] for k in mine))


def vwap_distance(t: Tape, i: int) -> Number:
    unit = None if t.s[i] is None else t.s[i] * math.sqrt(t.bar[i] + 1.0)  # type: ignore[operator]
    return ratio(log_of(ratio(t.c[i], session_vwap(t, i))), unit)


def illiquidity(t: Tape, i: int) -> Number:
    def over(bars: int, least: int) -> Number:
        window = range(max(0, i - bars + 1), i + 1)
        return average([None if t.r[k] is None else ratio(abs(t.r[k]), t.c[k] * t.v[k]) for k in window], least)  # type: ignore[arg-type]

    short, long = over(12, 6), over(78, 26)
    return None if short is None or long is None else ratio(short - long, short + long)


def price_correlation(t: Tape, i: int) -> Number:
    pairs = []
    for k in range(max(0, i - 23), i + 1):
        usual = average(last(t.v, k, 78), 12)
        r, s = t.r[k], t.s[k]
        if r is not None and s is not None and usual:
            pairs.append((r / s, t.v[k] / usual))
    if len(pairs) < 12:
        return None
    mx, my = fmean(x for x, _ in pairs), fmean(y for _, y in pairs)
    xx, yy = sum((x - mx) ** 2 for x, _ in pairs), sum((y - my) ** 2 for _, y in pairs)
    return ratio(sum((x - mx) * (y - my) for x, y in pairs), math.sqrt(xx * yy))


def weekday(t: Tape, i: int) -> Number:
    return (t.session[i].isoweekday() - 3) / 2.0


PLAIN_VOLUME: dict[str, Callable[[Tape, int], Number]] = {
    "volume__same_time_20": same_time,
    "volume__z_78": z_score,
    "volume__obv_slope_24": obv_slope,
    "volume__money_flow_20": money_flow,
    "volume__vwap_distance": vwap_distance,
    "volume__illiquidity_12_78": illiquidity,
    "volume__price_correlation_24": price_correlation,
    "clock__progress": lambda t, i: t.bar[i] / t.session_bars[i],
    "clock__sine": lambda t, i: math.sin(2.0 * math.pi * t.bar[i] / t.session_bars[i]),
    "clock__cosine": lambda t, i: math.cos(2.0 * math.pi * t.bar[i] / t.session_bars[i]),
    "clock__opening_6": lambda t, i: max(0.0, 1.0 - t.bar[i] / 6.0),
    "clock__weekday": weekday,
}
"""By name, the feature of a bar, before it is masked during warm-up."""


def market_return(z: Mapping[str, Number], universe: Sequence[str]) -> Number:
    """Mean of price__return_1 over the universe at one time; None below five."""
    return average([z.get(symbol) for symbol in universe], 5)


def rank(z: Mapping[str, Number], symbol: str, universe: Sequence[str]) -> Number:
    """Share of the other members below, ties half, minus a half; 0 below five."""
    mine = z[symbol]
    if mine is None:
        return None
    others = [value for name in universe if name != symbol and (value := z.get(name)) is not None]
    if len(others) + (symbol in universe) < 5:
        return 0.0
    return sum((value < mine) + 0.5 * (value == mine) for value in others) / len(others) - 0.5


def beta(z: Sequence[Number], market: Sequence[Number], i: int) -> Number:
    """Slope over 78 bars of a symbol's returns on the market's; 1 without a market."""
    pairs = [
        (m, y) for m, y in zip(last(market, i, 78), last(z, i, 78), strict=True) if m is not None and y is not None
    ]
    if len(pairs) < 26:
        return 1.0
    mx, my = fmean(m for m, _ in pairs), fmean(y for _, y in pairs)
    xx = fmean((m - mx) ** 2 for m, _ in pairs)
    slope = fmean((m - mx) * (y - my) for m, y in pairs) / xx if xx > 1e-9 else 1.0
    return max(-10.0, min(10.0, slope))
