"""In: bars of one symbol with their place on the calendar. Out: the columns that the expressions of features read."""

from __future__ import annotations

from typing import Final

import polars as pl

from klinepred.features.spec import over

SIGMA_BARS: Final = 78
SIGMA_LEAST: Final = 26
FLOOR: Final = 1e-6
"""Trailing volatility below a hundredth of a basis point is no unit: what is measured in it is masked."""

# The names below are the vocabulary of the feature files.
O, H, L, C, V = (pl.col(name) for name in ("open", "high", "low", "close", "volume"))  # noqa: E741
LOG_C: Final = pl.col("_log_c")
STEP: Final = pl.col("_step")
R: Final = pl.col("_r")
S: Final = pl.col("_s")
BAR: Final = pl.col("bar")
ROW: Final = pl.col("_row")
TYPICAL: Final = pl.col("_typical")
WIDTH: Final = pl.col("_width")
ATR: Final = pl.col("_atr")
# TA-Lib takes sums below 1e-14, money flow below 1, for zero. Scaled by powers of two, which leaves every bit of a
# ratio as it is, no price or volume is that small.
LARGE: Final = 2.0**40
BIG_H, BIG_L, BIG_C, BIG_V = H * LARGE, L * LARGE, C * LARGE, V * LARGE**2


def prepare(bars: pl.DataFrame, *, by: str | None = None) -> pl.DataFrame:
    """Add what many features share.

    `_row`: 1 on the symbol's first bar. `_log_c`: log close; `_step`: its change since the bar before, whatever lies
    between. `_r`: one-bar log return, null on the first bar of a stretch of trading and after a missing bar. `_s`: root
    mean square of `_r` over the last 78 bars (at least 26 of them known), null below `FLOOR`. `_typical`: mean of high,
    low, close. `_width`: high - low, null on a flat bar. `_moved_…`: `_row` of the last change, see `moved`.

    Parameters
    ----------
    bars
        Bars of one symbol in time order with the columns of `klinepred.calendar.place`.
    by
        A column that tells symbols apart, where there are several, one after another.
    """
    linked = (pl.col("slot") == pl.col("slot").shift(1) + 1) & (pl.col("segment") == pl.col("segment").shift(1))
    return (
        bars.with_columns(
            _row=over(pl.int_range(1, pl.len() + 1), by),
            _log_c=C.log(),
            _linked=over(linked, by),
            _typical=(H + L + C) / 3.0,
            _width=pl.when(H > L).then(H - L),
        )
        .with_columns(
            _step=over(LOG_C - LOG_C.shift(1), by),
            _moved_c=over(_last_change(C), by),
            _moved_typical=over(_last_change(TYPICAL), by),
        )
        .with_columns(_r=pl.when("_linked").then(STEP))
        .with_columns(_s=over(root_mean_square(R, SIGMA_BARS, least=SIGMA_LEAST), by))
        .with_columns(_s=pl.when(S >= FLOOR).then(S))
    )


def mean(value: pl.Expr, bars: int, *, least: int | None = None) -> pl.Expr:
    """Trailing mean over the last `bars` rows, nulls left out, null with fewer than `least` (default: all) known.

    Parameters
    ----------
    value
        Either never null, or null on the first row at least: polars sums columns with and without nulls in two ways
        that may differ in the last bit, and a null in the future must not choose the way for the past.
    """
    return value.rolling_mean(bars, min_samples=bars if least is None else least)


def root_mean_square(value: pl.Expr, bars: int, *, least: int | None = None) -> pl.Expr:
    """Root of the trailing mean of squares; see `mean`."""
    return mean(value**2, bars, least=least).clip(lower_bound=0.0).sqrt()


def moved(what: str, bars: int) -> pl.Expr:
    """True where c, or (h + l + c) / 3 (`typical`), is not the same on all of the last `bars` rows."""
    return ROW - pl.col(f"_moved_{what}") < bars - 1


def _last_change(value: pl.Expr) -> pl.Expr:
    return pl.when(value.ne(value.shift(1))).then(ROW).forward_fill()


def spread(square: pl.Expr, first: pl.Expr, *, least: float = 0.0) -> pl.Expr:
    """Population standard deviation from the mean of squares and the mean; null where it is rounding alone.

    Parameters
    ----------
    least
        Variance that a sum's rounding may leave behind, in the unit of the values.
    """
    variance = square - first**2
    return pl.when((variance > 1e-12 * square) & (variance > least)).then(variance).sqrt()


def tilt(one: pl.Expr, two: pl.Expr) -> pl.Expr:
    """(a - b) / (a + b) of two that are not negative: the hyperbolic tangent of half the log of a / b."""
    return (one - two) / (one + two)


def back(bars: int) -> pl.Expr:
    """Log return over `bars` bars; null where the calendar expected a bar between that is missing."""
    whole = pl.col("slot") == pl.col("slot").shift(bars) + bars
    return pl.when(whole).then(LOG_C - LOG_C.shift(bars))
