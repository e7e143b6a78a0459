"""In: bars of any symbols, a feature set, a universe. Out: `FeatureFrame`: one row per bar, one column per feature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

import polars as pl

from klinepred.bars.clean import is_sorted
from klinepred.calendar import place
from klinepred.errors import FeatureError
from klinepred.features import price, trend, volatility, volume
from klinepred.features.clock import CLOCK
from klinepred.features.cross import CROSS, CROSS_INPUT, cross_columns
from klinepred.features.prepare import ROW, prepare
from klinepred.features.price import PRICE
from klinepred.features.spec import Feature, FeatureSet
from klinepred.features.trend import TREND
from klinepred.features.volatility import VOLATILITY
from klinepred.features.volume import VOLUME
from klinepred.schema import BAR_SCHEMA, CALENDAR, VALUES, Bars

F50: Final = FeatureSet("f50", (*PRICE, *TREND, *VOLATILITY, *VOLUME, *CLOCK, *CROSS))
"""The default set: price 12, trend 12, volatility 9, volume 8, session clock 5, cross-section 4."""

SHARED: Final = tuple(
    {name: column for level in levels if level for name, column in level.items()}
    for levels in zip_longest(price.SHARED, trend.SHARED, volatility.SHARED, volume.SHARED)
)
"""What the expressions share, level by level."""

FEATURE_SETS: Final = {F50.name: F50}
"""Sets by name, as pipelines and bundles name them."""


@dataclass(frozen=True)
class FeatureFrame:
    """Features of bars.

    Attributes
    ----------
    frame
        symbol, ts, close, then exactly the set's columns, Float32, in order; sorted by symbol and ts. A value that is
        not defined (warm-up, 0/0, a missing bar before) is null: a mask, never a fill.
    universe
        The symbols that the cross-section was taken over.
    calendars
        By symbol, the text of its `Clock`.
    """

    frame: pl.DataFrame
    features: FeatureSet
    universe: tuple[str, ...]
    calendars: dict[str, str]


def build_features(
    bars: Bars | pl.LazyFrame | pl.DataFrame, features: FeatureSet = F50, *, universe: Sequence[str] | None = None
) -> FeatureFrame:
    """Compute a feature set for every bar, in Float64, handed out as Float32.

    Row t depends on bars <= t alone: any change of later bars leaves it bit-identical. It depends on its own symbol
    and, in the cross-section, on the symbols of the universe at the same times, in whatever order they come.

    Parameters
    ----------
    bars
        `Bars`; a DataFrame must keep the same promises.
    universe
        Symbols for the cross-section; default: all symbols in `bars`. A symbol outside it is measured against it
        without counting in it.

    Raises
    ------
    FeatureError
        A column is missing, or a bar lies where its calendar has none.
    """
    placed = _placed(bars)
    calendars = {s: str(c) for s, c in placed.select("symbol", CALENDAR).unique(maintain_order=True).iter_rows()}
    members = tuple(universe) if universe is not None else tuple(sorted(calendars))
    return FeatureFrame(_compute(placed, features, members, pl.Float32()), features, members, calendars)


def compute_features(
    bars: Bars | pl.LazyFrame | pl.DataFrame,
    features: FeatureSet = F50,
    *,
    universe: Sequence[str] | None = None,
    dtype: pl.DataType,
) -> pl.DataFrame:
    """The frame of `build_features` in another precision, such as Float64: what an audit compares.

    Raises
    ------
    FeatureError
        As `build_features`.
    """
    placed = _placed(bars)
    members = tuple(universe) if universe is not None else tuple(sorted(placed.get_column("symbol").unique()))
    return _compute(placed, features, members, dtype)


def _placed(bars: Bars | pl.LazyFrame | pl.DataFrame) -> pl.DataFrame:
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
    _on_grid(placed)
    return placed


def _compute(placed: pl.DataFrame, features: FeatureSet, members: tuple[str, ...], dtype: pl.DataType) -> pl.DataFrame:
    """symbol, ts, close, the set's columns as `dtype`; all arithmetic is in Float64."""
    own, across = _plans(features, dtype)
    sizes = _sizes(placed)
    masked, moves = [], []
    for part in _parts(placed, sizes):
        values = _own_columns(part, own)
        masked.append(values.with_columns(own.masks).select("symbol", "ts", "close", *own.names))
        moves.append(values.select("_row", *CROSS_INPUT))
    frame, moved = pl.concat(masked), pl.concat(moves)
    if across.names:
        market_N, rank_N = cross_columns(
            moved.get_column("_z").to_numpy(),
            moved.get_column("_z_12").to_numpy(),
            ts_N=frame.get_column("ts").to_physical().to_numpy(),
            sizes=sizes.get_column("len").to_numpy(),
            member_S=sizes.get_column("value").is_in(list(members)).to_numpy(),
        )
        crossed = moved.with_columns(
            _market=pl.Series(market_N, nan_to_null=True), _rank=pl.Series(rank_N, nan_to_null=True)
        )
        sides = [
            part.select("_row", *across.values).with_columns(across.masks).select(across.names)
            for part in _parts(crossed, sizes)
        ]
        frame = pl.concat([frame, pl.concat(sides)], how="horizontal")
    return frame.select("symbol", "ts", "close", *features.names)


@dataclass(frozen=True)
class _Plan:
    """Expressions of some features: `values` from the columns they read, `masks` over those of any symbols."""

    names: list[str]
    values: list[pl.Expr]
    masks: list[pl.Expr]


def _plans(features: FeatureSet, dtype: pl.DataType) -> tuple[_Plan, _Plan]:
    """Of a symbol's own features, and of those of the cross-section."""
    across = [feature for feature in features.features if feature.family == "cross"]
    own = [feature for feature in features.features if feature.family != "cross"]
    return _plan(own, dtype), _plan(across, dtype)


def _plan(features: list[Feature], dtype: pl.DataType) -> _Plan:
    """Values are cast before they are masked: a Float64 beyond Float32 is not finite either."""
    by_first: dict[int, list[str]] = {}
    for feature in features:
        by_first.setdefault(feature.first_value, []).append(feature.name)
    return _Plan(
        names=[feature.name for feature in features],
        values=[feature.expression.cast(dtype).alias(feature.name) for feature in features],
        masks=[
            pl.when(pl.col(*names).is_finite() & ROW.ge(first)).then(pl.col(*names)).name.keep()
            for first, names in by_first.items()
        ],
    )


def _sizes(frame: pl.DataFrame) -> pl.DataFrame:
    """`value` (the symbol) and `len` (its rows) in order; rows sorted by symbol."""
    return frame.get_column("symbol").rle().struct.unnest()


def _parts(frame: pl.DataFrame, sizes: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The rows of each symbol, without a copy; one empty part where there is none."""
    start = 0
    for size in sizes.get_column("len").to_list() or [0]:
        yield frame.slice(start, size)
        start += size


def _own_columns(bars: pl.DataFrame, plan: _Plan) -> pl.DataFrame:
    """Unmasked features of one symbol from its own bars, and what the cross-section reads."""
    table = prepare(bars)
    for level in SHARED:
        table = table.with_columns(**level)
    return table.select("symbol", "ts", "close", "_row", *plan.values, **CROSS_INPUT)


def _on_grid(placed: pl.DataFrame) -> None:
    off = placed.filter(pl.col("slot").is_null())
    if off.height:
        symbol, ts, calendar = off.select("symbol", "ts", CALENDAR).row(0)
        raise FeatureError(
            "bars for features",
            expected="bars inside the sessions and on the 5-minute grid of their calendar",
            got=f"{off.height} others, the first of {symbol} at {ts:%Y-%m-%dT%H:%M:%SZ} by {calendar}",
            do="ingest them, which sets such rows aside, or name the right calendar",
        )
