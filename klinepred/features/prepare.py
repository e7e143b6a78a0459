"""In: bars of one symbol with their place on the calendar. Out: the columns that the expressions of features read."""

from __future__ import annotations

from typing import Final

import polars as pl

SIGMA_BARS: Final = 78
SIGMA_LEAST: Final = 26
FLOOR: Final = 1e-6
"""Trailing volatility below a hundredth of a basis point is no unit: what is measured in it is masked."""

# The names below are the vocabulary of the feature files.
O, H, L, C, V = (pl.col(name) for name in ("open", "high", "low", "close", "volume"))  # noqa: E741
LOG_C: Final = pl.col("_log_c")
R: Final = pl.col("_r")
S: Final = pl.col("_s")
BAR: Final = pl.col("bar")


def prepare(bars: pl.DataFrame) -> pl.DataFrame:
    """Add what many features share.

    `_log_c`: log close. `_r`: one-bar log return, null on the first bar of a stretch of trading and after a missing
    bar. `_s`: root mean square of `_r` over the last 78 bars (at least 26 of them known), null below `FLOOR`.
    `_gap`: on the first bar of a session, the log return from the bar before to its open, in units of 8 `_s` there.
    """
    log_c = pl.col("close").log()
    linked = (pl.col("slot") == pl.col("slot").shift(1) + 1) & (pl.col("segment") == pl.col("segment").shift(1))
    return (
        bars.with_columns(_log_c=log_c)
        .with_columns(_r=pl.when(linked).then(LOG_C - LOG_C.shift(1)))
        .with_columns(_s=root_mean_square(R, SIGMA_BARS, least=SIGMA_LEAST))
        .with_columns(_s=pl.when(S >= FLOOR).then(S))
        .with_columns(_gap=pl.when(BAR == 0).then((O / C.shift(1)).log() / (S.shift(1) * 8.0)))
    )


def mean(value: pl.Expr, bars: int, *, least: int | None = None) -> pl.Expr:
    """Trailing mean over the last `bars` rows, nulls left out, null with fewer than `least` (default: all) known.

    polars sums columns with and without nulls in two ways that differ in the last bit; the first row is made null, so
    that a null in the future cannot choose the way for the past.
    """
    one_way = pl.when(pl.int_range(pl.len()) > 0).then(value)
    return one_way.rolling_mean(bars, min_samples=bars if least is None else least)


def root_mean_square(value: pl.Expr, bars: int, *, least: int | None = None) -> pl.Expr:
    """Root of the trailing mean of squares; see `mean`."""
    return mean(value**2, bars, least=least).clip(lower_bound=0.0).sqrt()


def deviation(value: pl.Expr, bars: int, *, least: int | None = None) -> pl.Expr:
    """Population standard deviation over the last `bars` rows, 0 where rounding would make it negative."""
    first = mean(value, bars, least=least)
    spread = mean(value**2, bars, least=least) - first**2
    return pl.when(spread > 1e-12 * first**2).then(spread).sqrt()


def back(bars: int) -> pl.Expr:
    """Log return over `bars` bars; null where the calendar expected a bar between that is missing."""
    whole = pl.col("slot") == pl.col("slot").shift(bars) + bars
    return pl.when(whole).then(LOG_C - LOG_C.shift(bars))
