"""In: bars of any symbols, features. Out: their columns: own ones symbol by symbol, then those of the cross-section."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

import numpy as np
import polars as pl

from klinepred.bars.clean import is_sorted
from klinepred.calendar import place
from klinepred.errors import FeatureError
from klinepred.features import price, trend, volatility, volume
from klinepred.features.blame import blaming_packages
from klinepred.features.cross import CROSS_INPUT, cross_columns
from klinepred.features.prepare import ROW, prepare
from klinepred.features.spec import Feature, FeatureSet, Per, over
from klinepred.features.workers import each
from klinepred.schema import BAR_SCHEMA, CALENDAR, VALUES, Bars

SHARED: Final = tuple(
    {name: column for level in levels if level for name, column in level.items()}
    for levels in zip_longest(price.SHARED, trend.SHARED, volatility.SHARED, volume.SHARED)
)
"""What the expressions share, level by level."""


@dataclass(frozen=True)
class Plan:
    """Expressions of some features.

    Attributes
    ----------
    levels
        Shared columns they need, in order.
    values
        One expression a feature, cast, over the columns of one symbol.
    masks
        What nulls their columns where they are not finite or not to be shown yet, by `_row`.
    origins
        By name of those that packages declare, the package.
    """

    names: list[str]
    levels: list[Mapping[str, pl.Expr | Per]]
    values: list[pl.Expr]
    masks: list[pl.Expr]
    origins: Mapping[str, str]


def plans(features: FeatureSet, dtype: pl.DataType) -> tuple[Plan, Plan]:
    """Of a symbol's own features, and of those of the cross-section (family `cross`)."""
    across = [feature for feature in features.features if feature.family == "cross"]
    own = [feature for feature in features.features if feature.family != "cross"]
    return plan_of(own, dtype), plan_of(across, dtype)


def plan_of(features: Sequence[Feature], dtype: pl.DataType) -> Plan:
    """Values are cast before they are masked: a Float64 beyond Float32 is not finite either."""
    by_first: dict[int, list[str]] = {}
    for feature in features:
        by_first.setdefault(feature.first_value, []).append(feature.name)
    return Plan(
        names=[feature.name for feature in features],
        levels=_needed([feature.expression for feature in features]),
        values=[feature.expression.cast(dtype).alias(feature.name) for feature in features],
        masks=[
            pl.when(pl.col(*names).is_finite() & ROW.ge(first)).then(pl.col(*names)).name.keep()
            for first, names in by_first.items()
        ],
        origins={feature.name: feature.origin for feature in features if feature.origin},
    )


def _needed(expressions: Sequence[pl.Expr]) -> list[Mapping[str, pl.Expr | Per]]:
    """Of the shared columns those that `expressions` read, themselves or through others."""
    wanted = {name for expression in expressions for name in expression.meta.root_names()}
    levels: list[Mapping[str, pl.Expr | Per]] = []
    for level in reversed(SHARED):
        mine = {name: what for name, what in level.items() if name in wanted}
        wanted |= {name for what in mine.values() for name in over(what, None).meta.root_names()}
        levels.insert(0, mine)
    return [level for level in levels if level]


def placed_bars(bars: Bars | pl.LazyFrame | pl.DataFrame) -> pl.DataFrame:
    """Bars sorted by symbol and ts, with their place on the calendar.

    Raises
    ------
    FeatureError
        A column is missing, or a bar lies where its calendar has none.
    """
    table = bars.lazy().collect()
    missing = [name for name in (*BAR_SCHEMA, CALENDAR) if name not in table.columns]
    if missing:
        raise FeatureError(
            "bars for features",
            expected=f"columns {', '.join(BAR_SCHEMA)} and {CALENDAR}",
            got=f"no {', '.join(missing)}",
            do="take bars from scan_bars, or make them with check_bars(frame, clock=Clock('XNYS'))",
        )
    table = table if is_sorted(table) else table.sort("symbol", "ts")
    placed = place(table.cast({name: pl.Float64() for name in VALUES}))
    _check_grid(placed)
    return placed


def _check_grid(placed: pl.DataFrame) -> None:
    off = placed.filter(pl.col("slot").is_null())
    if off.height:
        symbol, ts, calendar = off.select("symbol", "ts", CALENDAR).row(0)
        raise FeatureError(
            "bars for features",
            expected="bars inside the sessions and on the 5-minute grid of their calendar",
            got=f"{off.height} others, the first of {symbol} at {ts:%Y-%m-%dT%H:%M:%SZ} by {calendar}",
            do="ingest them, which sets such rows aside, or name the right calendar",
        )


def sizes_of(frame: pl.DataFrame) -> pl.DataFrame:
    """`value` (the symbol) and `len` (its rows) in order; rows sorted by symbol."""
    return frame.get_column("symbol").rle().struct.unnest()


def parts_of(frame: pl.DataFrame, sizes: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The rows of each symbol, without a copy; one empty part where there is none."""
    start = 0
    for size in sizes.get_column("len").to_list() or [0]:
        yield frame.slice(start, size)
        start += size


def own_columns(bars: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    """symbol, ts, close, `_row`, unmasked features of one symbol from its own bars, and `CROSS_INPUT`."""
    table = shared_columns(bars, plan)
    with blaming_packages(plan.origins):
        return table.select("symbol", "ts", "close", "_row", *plan.values, **CROSS_INPUT)


def shared_columns(bars: pl.DataFrame, plan: Plan, *, by: str | None = None) -> pl.DataFrame:
    """`bars` of one symbol, or of several that `by` tells apart, with all that the plan's expressions read."""
    table = prepare(bars, by=by)
    for level in plan.levels:
        table = table.with_columns(**{name: over(what, by) for name, what in level.items()})
    return table


def across_columns(moves: pl.DataFrame, plan: Plan, *, universe: Sequence[str]) -> list[pl.DataFrame]:
    """Masked features of the cross-section: of each symbol of `moves` its rows.

    Parameters
    ----------
    moves
        symbol, ts, `_row` (of the symbol, from 1) and the columns of `CROSS_INPUT`; sorted by symbol and ts.
    """
    sizes = sizes_of(moves)
    market_N, rank_N = cross_columns(
        moves.get_column("_z").to_numpy(),
        moves.get_column("_z_12").to_numpy(),
        ts_N=moves.get_column("ts").to_physical().to_numpy(),
        sizes=sizes.get_column("len").to_numpy().astype(np.int64),
        member_S=sizes.get_column("value").is_in(list(universe)).to_numpy(),
    )
    crossed = moves.with_columns(
        _market=pl.Series(market_N, nan_to_null=True), _rank=pl.Series(rank_N, nan_to_null=True)
    )
    return each(
        lambda part: part.select("_row", *plan.values).with_columns(plan.masks).select(plan.names),
        parts_of(crossed, sizes),
    )
