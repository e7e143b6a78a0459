"""In: bars. Out: moments at which to cut them, and other futures after such a moment."""

# Shapes: N rows.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np
import polars as pl

from klinepred.calendar import place
from klinepred.schema import PRICES

Future = Callable[[pl.DataFrame, pl.Series], pl.DataFrame]
SEED: Final = 20_260_730


@dataclass(frozen=True)
class Cut:
    """A moment: rows with `ts` up to it are the past.

    Attributes
    ----------
    ts
        Open of the last bar that is known.
    where
        In words.
    """

    ts: datetime
    where: str

    def __str__(self) -> str:
        return f"{self.ts:%Y-%m-%dT%H:%MZ} ({self.where})"


def choose_cuts(bars: pl.DataFrame, *, most: int) -> list[Cut]:
    """Moments that differ in kind: amid sessions, at their edges, at gaps, on half days, in the warm-up.

    Always the same for the same bars; at least one bar lies after each.

    Parameters
    ----------
    bars
        `Bars`, collected, sorted by symbol and ts.
    """
    placed = place(bars)
    times = (
        placed.group_by("ts").agg(pl.col("session", "bar", "session_bars").first()).sort("ts").head(-1)
    )  # after the last bar there is no future to change
    if times.is_empty():
        return []
    days = times.get_column("session").unique().sort()
    picks = [_amid(times, days, 0.55, 0.37, "amid a session"), _amid(times, days, 0.85, 0.0, "first bar of a session")]
    picks += [_amid(times, days, 0.7, 1.0, "last bar of a session"), *_at_gaps(placed, times)]
    picks += [*_short_day(times), _amid(times, days, 0.0, 0.08, "in the warm-up")]
    spots = (
        (0.93, 0.62),
        (0.4, 0.99),
        (0.62, 0.02),
        (0.78, 0.21),
        (0.97, 0.83),
        (0.33, 0.5),
        (0.48, 0.13),
        (0.9, 0.29),
    )
    picks += [_amid(times, days, day, share, "amid a session") for day, share in spots]
    found: dict[datetime, Cut] = {}
    for pick in picks:
        if pick is not None:
            found.setdefault(pick.ts, pick)
    return list(found.values())[:most]


def _amid(times: pl.DataFrame, days: pl.Series, day: float, share: float, where: str) -> Cut | None:
    session = days[min(len(days) - 1, int(day * len(days)))]
    own = times.filter(pl.col("session") == session).get_column("ts")
    return Cut(own[round(share * (len(own) - 1))], where)


def _at_gaps(placed: pl.DataFrame, times: pl.DataFrame) -> list[Cut | None]:
    """Before and after a missing bar of some symbol, the one nearest to two thirds of the history."""
    last = times.get_column("ts")[-1]
    gaps = (
        placed.with_columns(
            _before=pl.col("ts").shift(1).over("symbol"), _missing=pl.col("slot").diff().over("symbol") > 1
        )
        .filter(pl.col("_missing") & (pl.col("ts") <= last))
        .select("symbol", "ts", "_before")
        .sort("ts", "symbol")
    )
    if gaps.is_empty():
        return []
    symbol, after, before = gaps.row(2 * gaps.height // 3)
    return [Cut(after, f"first bar after a gap of {symbol}"), Cut(before, f"last bar before a gap of {symbol}")]


def _short_day(times: pl.DataFrame) -> list[Cut | None]:
    short = times.filter(pl.col("session_bars") < pl.col("session_bars").max())
    if short.is_empty():
        return []
    days = short.get_column("session").unique().sort()
    return [_amid(short, days, 0.5, 0.5, "amid a short session"), _amid(short, days, 0.5, 1.0, "last bar of one")]


def cut_off(bars: pl.DataFrame, later_N: pl.Series) -> pl.DataFrame:
    """Nothing after it."""
    return bars.filter(~later_N)


def changed(bars: pl.DataFrame, later_N: pl.Series) -> pl.DataFrame:
    """Every bar after it with other prices and another volume; still bars that could be."""
    rng = np.random.default_rng(SEED)
    price_N = np.exp(rng.normal(0.0, 0.3, bars.height))
    volume_N = np.exp(rng.normal(0.0, 1.5, bars.height))
    factors = dict.fromkeys(PRICES, pl.Series(price_N)) | {"volume": pl.Series(volume_N)}
    return bars.with_columns(
        pl.when(later_N).then(pl.col(name) * factor).otherwise(pl.col(name)).alias(name)
        for name, factor in factors.items()
    )


def thinned(bars: pl.DataFrame, later_N: pl.Series) -> pl.DataFrame:
    """Half of the bars after it missing, the others changed."""
    keep = pl.Series(np.random.default_rng(SEED + 1).random(bars.height) < 0.5)
    return changed(bars, later_N).filter(~later_N | keep)


def deserted(bars: pl.DataFrame, later_N: pl.Series) -> pl.DataFrame:
    """All symbols but the first end there."""
    return bars.filter(~later_N | (pl.col("symbol") == bars.get_column("symbol")[0]))


def one_changed(bars: pl.DataFrame, later_N: pl.Series) -> pl.DataFrame:
    """The last symbol alone goes another way."""
    return changed(bars, later_N & (bars.get_column("symbol") == bars.get_column("symbol")[-1]))


FUTURES: Final[dict[str, Future]] = {
    "cut off": cut_off,
    "changed and thinned": thinned,
    "changed": changed,
    "all symbols but one gone": deserted,
    "one symbol changed": one_changed,
}
"""By name, the most telling first."""


def strangers(bars: pl.DataFrame) -> pl.DataFrame:
    """`bars` beside those of two symbols that nobody asked for, one before and one behind all others."""
    symbols = bars.get_column("symbol").unique().sort()
    others = []
    for name, model in ((f"0{symbols[0]}", symbols[0]), (f"{symbols[-1]}Z", symbols[-1])):
        own = bars.filter(pl.col("symbol") == model).with_columns(pl.lit(name).alias("symbol"))
        others.append(changed(own, pl.repeat(True, own.height, eager=True)))
    return pl.concat([bars, *others]).sort("symbol", "ts")
