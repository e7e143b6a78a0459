"""In: bars of one symbol with their places. Out: features by plain loops, one bar after the other."""

# Nothing here is shared with klinepred: each answer is worked out from the words of the feature's formula.

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from statistics import fmean
from typing import TypeVar

import polars as pl

Number = float | None
T = TypeVar("T")


@dataclass
class Tape:
    """Columns as lists; `r` one-bar log returns, `s` trailing volatility, `q` that over 12 bars."""

    o: list[float]
    h: list[float]
    l: list[float]  # noqa: E741
    c: list[float]
    v: list[float]
    slot: list[int]
    segment: list[int]
    session: list[date]
    bar: list[int]
    session_bars: list[int]

    def __post_init__(self) -> None:
        self.r: list[Number] = [None]
        for i in range(1, len(self.c)):
            joined = self.slot[i] == self.slot[i - 1] + 1 and self.segment[i] == self.segment[i - 1]
            self.r.append(math.log(self.c[i] / self.c[i - 1]) if joined else None)
        self.s = [self._root(i, 78, 26) for i in range(len(self.c))]
        self.s = [None if s is None or s < 1e-6 else s for s in self.s]
        self.q = [self._root(i, 12, 6) for i in range(len(self.c))]

    def _root(self, i: int, bars: int, least: int) -> Number:
        square = average([None if r is None else r * r for r in last(self.r, i, bars)], least)
        return None if square is None else math.sqrt(square)


def tape(placed: pl.DataFrame) -> Tape:
    """Columns of one symbol in time order as lists."""
    names = ("open", "high", "low", "close", "volume", "slot", "segment", "session", "bar", "session_bars")
    return Tape(*(placed.get_column(name).to_list() for name in names))


def last(values: Sequence[T], i: int, bars: int) -> list[T]:
    """The `bars` newest at bar i, fewer at the start."""
    return list(values[max(0, i - bars + 1) : i + 1])


def average(values: Sequence[Number], least: int) -> Number:
    """Mean of those known."""
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) >= least else None


def ratio(above: Number, below: Number) -> Number:
    """a / b; None for 0/0, x/0 and where either is unknown."""
    return None if above is None or not below else above / below


def log_of(value: Number) -> Number:
    """Natural logarithm; None where there is none."""
    return None if value is None or value <= 0.0 else math.log(value)


# price -----------------------------------------------------------------------------------------------------------


def scaled_return(t: Tape, i: int, bars: int) -> Number:
    if i < bars or t.slot[i] != t.slot[i - bars] + bars or t.s[i] is None:
        return None
    return ratio(math.log(t.c[i] / t.c[i - bars]), t.s[i] * math.sqrt(bars))  # type: ignore[operator]


def gap(t: Tape, i: int) -> Number:
    first = next((k for k in range(i, -1, -1) if t.session[k] == t.session[i] and t.bar[k] == 0), None)
    if first is None or first == 0:
        return None
    before = first - 1
    if t.slot[first] - t.slot[before] != t.session_bars[before] - t.bar[before]:  # a session between is missing
        return None
    s = t.s[before]
    return None if s is None else math.log(t.o[first] / t.c[before]) / (8.0 * s)


# trend -----------------------------------------------------------------------------------------------------------


def ema(values: Sequence[float], span: int) -> list[float]:
    out = [values[0]]
    for value in values[1:]:
        out.append(out[-1] + 2.0 / (span + 1.0) * (value - out[-1]))
    return out


def stochastic(t: Tape, i: int) -> Number:
    low, high = min(last(t.l, i, 14)), max(last(t.h, i, 14))
    return ratio(t.c[i] - low, high - low)


def folded_slope_t(t: Tape, i: int) -> Number:
    y = [math.log(c) for c in last(t.c, i, 24)]
    if len(y) < 24 or len(set(last(t.c, i, 24))) == 1:
        return None
    x = [float(k) for k in range(24)]
    mx, my = fmean(x), fmean(y)
    sxx = sum((a - mx) ** 2 for a in x)
    slope = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sxx
    rest = sum((b - my - slope * (a - mx)) ** 2 for a, b in zip(x, y, strict=True))
    if rest == 0.0:
        return math.copysign(5.0, slope)
    t_value = slope / math.sqrt(rest / 22.0 / sxx)
    return t_value / math.sqrt(1.0 + t_value**2 / 25.0)


def to_extreme(t: Tape, i: int, extreme: float) -> Number:
    s = t.s[i]
    return None if s is None else math.log(t.c[i] / extreme) / (s * math.sqrt(78.0))


def efficiency(t: Tape, i: int) -> Number:
    if i < 12:
        return None
    steps = [math.log(t.c[k] / t.c[k - 1]) for k in range(i - 11, i + 1)]
    return ratio(sum(steps), sum(abs(step) for step in steps))


# volatility ------------------------------------------------------------------------------------------------------


def against_s(t: Tape, i: int, bars: int, variance: Callable[[int], float]) -> Number:
    window = range(max(0, i - bars + 1), i + 1)
    total = math.fsum(variance(k) for k in window)
    # what is left of terms that cancel is rounding
    size = math.fsum(abs(variance(k)) for k in window)
    level = None if total <= 1e-9 * size else math.sqrt(total / bars)
    return None if len(window) < bars else log_of(ratio(level, t.s[i]))


def parkinson(t: Tape, k: int) -> float:
    return math.log(t.h[k] / t.l[k]) ** 2 / (4.0 * math.log(2.0))


def garman_klass(t: Tape, k: int) -> float:
    return math.log(t.h[k] / t.l[k]) ** 2 / 2.0 - (2.0 * math.log(2.0) - 1.0) * math.log(t.c[k] / t.o[k]) ** 2


def rogers_satchell(t: Tape, k: int) -> float:
    up = math.log(t.h[k] / t.o[k]) * math.log(t.h[k] / t.c[k])
    return up + math.log(t.l[k] / t.o[k]) * math.log(t.l[k] / t.c[k])


def jump_share(t: Tape, i: int) -> Number:
    pairs = [
        None if k < 1 or t.r[k] is None or t.r[k - 1] is None else abs(t.r[k] * t.r[k - 1])  # type: ignore[operator]
        for k in range(max(0, i - 77), i + 1)
    ]
    share = ratio(average(pairs, 26), None if t.s[i] is None else t.s[i] ** 2)  # type: ignore[operator]
    return None if share is None else 1.0 - math.pi / 2.0 * share


def of_volatility(t: Tape, i: int) -> Number:
    known = [q for q in last(t.q, i, 78) if q is not None]
    if len(known) < 26:
        return None
    middle = fmean(known)
    return ratio(math.sqrt(fmean([(q - middle) ** 2 for q in known])), middle)


def skew(t: Tape, i: int) -> Number:
    cube = average([None if r is None else r**3 for r in last(t.r, i, 78)], 26)
    return ratio(cube, None if t.s[i] is None else t.s[i] ** 3)  # type: ignore[operator]


PLAIN: dict[str, Callable[[Tape, int], Number]] = {
    **{f"price__return_{n}": partial(scaled_return, bars=n) for n in (1, 2, 3, 6, 12, 24, 78)},
    "price__body": lambda t, i: ratio(t.c[i] - t.o[i], t.h[i] - t.l[i]),
    "price__upper_shadow": lambda t, i: ratio(t.h[i] - max(t.o[i], t.c[i]), t.h[i] - t.l[i]),
    "price__lower_shadow": lambda t, i: ratio(min(t.o[i], t.c[i]) - t.l[i], t.h[i] - t.l[i]),
    "price__close_location": lambda t, i: ratio(t.c[i] - t.l[i], t.h[i] - t.l[i]),
    "price__overnight_gap": gap,
    "trend__ema_6_24": lambda t, i: ratio(math.log(ema(t.c[: i + 1], 6)[-1] / ema(t.c[: i + 1], 24)[-1]), t.s[i]),
    "trend__ema_12_48": lambda t, i: ratio(math.log(ema(t.c[: i + 1], 12)[-1] / ema(t.c[: i + 1], 48)[-1]), t.s[i]),
    "trend__stochastic_14": stochastic,
    "trend__slope_t_24": folded_slope_t,
    "trend__high_78": lambda t, i: to_extreme(t, i, max(last(t.h, i, 78))),
    "trend__low_78": lambda t, i: to_extreme(t, i, min(last(t.l, i, 78))),
    "trend__efficiency_12": efficiency,
    "volatility__realised_78": lambda t, i: log_of(t.s[i]),
    "volatility__short_long_12_78": lambda t, i: (
        None if t.q[i] is None or t.s[i] is None else (t.q[i] - t.s[i]) / (t.q[i] + t.s[i])  # type: ignore[operator]
    ),
    "volatility__parkinson_12": lambda t, i: against_s(t, i, 12, lambda k: parkinson(t, k)),
    "volatility__garman_klass_39": lambda t, i: against_s(t, i, 39, lambda k: garman_klass(t, k)),
    "volatility__rogers_satchell_78": lambda t, i: against_s(t, i, 78, lambda k: rogers_satchell(t, k)),
    "volatility__jump_share_78": jump_share,
    "volatility__of_volatility_78": of_volatility,
    "volatility__skew_78": skew,
}
"""By name, the feature of a bar, before it is masked during warm-up."""
