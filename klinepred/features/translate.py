"""In: the tree of a formula. Out: the polars expression that computes it over one symbol's bars in time order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import polars as pl

from klinepred.formula.tree import Call, Case, Column, Lag, Node, Number, Window

_SLOT: Final = pl.col("slot")

MOST: Final = 1e100
"""Numbers from there on are left out of windows: a sum that has once run over stays no number ever after."""


def expression_of(node: Node) -> pl.Expr:
    """The expression, in Float64; reads the columns of `klinepred.calendar.place` alone.

    A number that is not finite (1/0, LN(0), SQRT(-1)) is null at once, so that it spoils no window. LAG is null where
    the calendar expected a bar between that is missing. Each part is named once: polars computes a part that an
    expression names twice twice over.
    """
    match node:
        case Number():
            return pl.lit(node.value, dtype=pl.Float64)
        case Column():
            return pl.col(node.name).cast(pl.Float64)
        case Call():
            return _CALLS[node.name](*map(expression_of, node.args))
        case Case():
            return _case(node)
        case Lag():
            whole = _SLOT - _SLOT.shift(node.bars) == node.bars
            if node.within:
                whole &= pl.col(node.within) == pl.col(node.within).shift(node.bars)
            return pl.when(whole).then(expression_of(node.of).shift(node.bars))
        case Window():
            # an expression would take the inner parts as well into the groups of `over`: a function does not
            cut = pl.col(node.within).rle_id() if node.within else pl.lit(0, dtype=pl.UInt32)
            return pl.struct(value=expression_of(node.of), cut=cut).map_batches(
                partial(_windows, node.name, node.bars + 1, bool(node.within)), return_dtype=pl.Float64
            )


def _finite(value: pl.Expr) -> pl.Expr:
    kept = pl.when(pl.field("value").is_finite()).then(pl.field("value"))
    return pl.struct(value=value).struct.with_fields(value=kept).struct.field("value")


_CALLS: Final[dict[str, Callable[..., pl.Expr]]] = {
    "*": lambda a, b: _finite(a * b),
    "/": lambda a, b: _finite(a / b),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "NEG": lambda a: -a,
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "AND": lambda a, b: a & b,
    "OR": lambda a, b: a | b,
    "NOT": lambda a: ~a,
    "IS NULL": lambda a: a.is_null(),
    "ABS": lambda a: a.abs(),
    "SIGN": lambda a: a.sign(),
    "LEAST": lambda *some: pl.min_horizontal(*some),
    "GREATEST": lambda *some: pl.max_horizontal(*some),
    "LN": lambda a: _finite(a.log()),
    "LOG10": lambda a: _finite(a.log10()),
    "EXP": lambda a: _finite(a.exp()),
    "SQRT": lambda a: _finite(a.sqrt()),
    "POWER": lambda a, b: _finite(a.pow(b)),
    "COALESCE": lambda *some: pl.coalesce(*some),
    "NULLIF": lambda a, b: _unless_equal(a, b),
}


def _unless_equal(value: pl.Expr, other: pl.Expr) -> pl.Expr:
    kept = pl.when(pl.field("value") == pl.field("other")).then(None).otherwise(pl.field("value"))
    return pl.struct(value=value, other=other).struct.with_fields(value=kept).struct.field("value")


def _case(node: Case) -> pl.Expr:
    value = expression_of(node.otherwise)
    for when, then in reversed(node.whens):
        value = pl.when(expression_of(when)).then(expression_of(then)).otherwise(value)
    return value


_ROLLING: Final[dict[str, Callable[[pl.Expr, int], pl.Expr]]] = {
    "AVG": lambda value, size: value.rolling_mean(size, min_samples=1),
    "SUM": lambda value, size: value.rolling_sum(size, min_samples=1),
    "MIN": lambda value, size: value.rolling_min(size, min_samples=1),
    "MAX": lambda value, size: value.rolling_max(size, min_samples=1),
    "COUNT": lambda value, size: value.is_not_null().cast(pl.Float64).rolling_sum(size, min_samples=1),
    "STDDEV": lambda value, size: (
        # rounding leaves a little of what went before in a window that has become constant
        pl.when(value.rolling_max(size, min_samples=2) > value.rolling_min(size, min_samples=2))
        .then(value.rolling_std(size, min_samples=2))
        .otherwise(0.0 * value.rolling_max(size, min_samples=2))
    ),
}


def _windows(name: str, size: int, cut: bool, batch: pl.Series) -> pl.Series:
    """One value per row from the last `size` rows of `value`, nulls left out; none of another `cut`.

    polars sums columns with and without nulls in two ways that may differ in the last bit. A null before the first
    row, which counts for nothing, keeps a null in the future from choosing the way for the past.
    """
    table = batch.struct.unnest()
    value = pl.col("value")
    kept = table.with_columns(pl.when(value.abs() < MOST).then(value))
    if not cut:
        return kept.select(_from_null(value, name, size)).to_series()
    return kept.select(_from_null(value, name, size).over("cut")).to_series()


def _from_null(value: pl.Expr, name: str, size: int) -> pl.Expr:
    led = pl.lit(None, dtype=pl.Float64).append(value)
    return _ROLLING[name](led, size).slice(1)
