"""In: bars of any symbols, a feature set, a universe. Out: `FeatureFrame`: one row per bar, one column per feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

import polars as pl

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
    table = bars.lazy().collect().sort("symbol", "ts")
    missing = [name for name in (*BAR_SCHEMA, CALENDAR) if name not in table.columns]
    if missing:
        raise FeatureError(
            "bars for features",
            expected=f"columns {', '.join(BAR_SCHEMA)} and {CALENDAR}",
            got=f"no {', '.join(missing)}",
            do="take bars from scan_bars, or make them with check_bars(frame, clock=Clock('XNYS'))",
        )
    placed = place(table.cast({name: pl.Float64() for name in VALUES}))
    _on_grid(placed)
    return placed


def _compute(placed: pl.DataFrame, features: FeatureSet, members: tuple[str, ...], dtype: pl.DataType) -> pl.DataFrame:
    """symbol, ts, close, the set's columns as `dtype`; all arithmetic is in Float64."""
    own = tuple(feature for feature in features.features if feature.family != "cross")
    across = tuple(feature for feature in features.features if feature.family == "cross")
    parts = placed.partition_by("symbol", maintain_order=True) if placed.height else [placed]
    frame = pl.concat([_own_columns(part, own, dtype) for part in parts])
    if across:
        crossed = cross_columns(frame[["symbol", "ts", "_row", *CROSS_INPUT]].rechunk(), universe=members)
        parts = crossed.partition_by("symbol", maintain_order=True) if crossed.height else [crossed]
        sides = [_masked(part.select("_row", *_raw(across)), across, dtype).drop("_row") for part in parts]
        frame = pl.concat([frame, pl.concat(sides)], how="horizontal")
    return frame[["symbol", "ts", "close", *features.names]]


def _own_columns(bars: pl.DataFrame, features: tuple[Feature, ...], dtype: pl.DataType) -> pl.DataFrame:
    """Features of one symbol from its own bars, and what the cross-section reads."""
    table = prepare(bars)
    for level in SHARED:
        table = table.with_columns(**level)
    values = table.select("symbol", "ts", "close", "_row", *_raw(features), **CROSS_INPUT)
    return _masked(values, features, dtype)


def _raw(features: tuple[Feature, ...]) -> list[pl.Expr]:
    return [feature.expression.alias(feature.name) for feature in features]


def _masked(values: pl.DataFrame, features: tuple[Feature, ...], dtype: pl.DataType) -> pl.DataFrame:
    """Cast, then null what is not finite (a Float64 beyond Float32 among it) or not to be shown yet."""
    cast = values.with_columns(pl.col(*(feature.name for feature in features)).cast(dtype))
    by_first: dict[int, list[str]] = {}
    for feature in features:
        by_first.setdefault(feature.first_value, []).append(feature.name)
    return cast.with_columns(
        pl.when(pl.col(*names).is_finite() & ROW.ge(first)).then(pl.col(*names)).name.keep()
        for first, names in by_first.items()
    )


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
