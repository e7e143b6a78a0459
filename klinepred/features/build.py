"""In: bars of any symbols, a feature set, a universe. Out: `FeatureFrame`: one row per bar, one column per feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from klinepred.features.clock import CLOCK
from klinepred.features.columns import across_columns, own_columns, parts_of, placed_bars, plans, sizes_of
from klinepred.features.cross import CROSS, CROSS_INPUT
from klinepred.features.price import PRICE
from klinepred.features.spec import FeatureSet
from klinepred.features.trend import TREND
from klinepred.features.volatility import VOLATILITY
from klinepred.features.volume import VOLUME
from klinepred.features.workers import each
from klinepred.schema import CALENDAR, Bars

F50: Final = FeatureSet("f50", (*PRICE, *TREND, *VOLATILITY, *VOLUME, *CLOCK, *CROSS))
"""The default set: price 12, trend 12, volatility 9, volume 8, session clock 5, cross-section 4."""

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
    return features_and_moves(placed_bars(bars), features, universe=universe)[0]


def features_and_moves(
    placed: pl.DataFrame, features: FeatureSet, *, universe: Sequence[str] | None = None
) -> tuple[FeatureFrame, pl.DataFrame]:
    """`build_features` of bars that were placed, and what their cross-section was made from.

    Returns
    -------
    tuple
        The features; symbol, ts, `_row` and the columns of `klinepred.features.cross.CROSS_INPUT`, a row each bar.
    """
    calendars = {
        part.item(0, "symbol"): str(part.item(0, CALENDAR))
        for part in parts_of(placed, sizes_of(placed))
        if part.height
    }
    members = tuple(universe) if universe is not None else tuple(sorted(calendars))
    frame, moves = _compute(placed, features, members, pl.Float32())
    return FeatureFrame(frame, features, members, calendars), moves


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
    placed = placed_bars(bars)
    members = tuple(universe) if universe is not None else tuple(sorted(placed.get_column("symbol").unique()))
    return _compute(placed, features, members, dtype)[0]


def _compute(
    placed: pl.DataFrame, features: FeatureSet, members: tuple[str, ...], dtype: pl.DataType
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """symbol, ts, close, the set's columns as `dtype`; what they share. All arithmetic is in Float64."""
    own, across = plans(features, dtype)

    def own_part(part: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        values = own_columns(part, own)
        masked = values.with_columns(own.masks).select("symbol", "ts", "close", *own.names)
        return masked, values.select("symbol", "ts", "_row", *CROSS_INPUT)

    sizes = sizes_of(placed)
    done = each(own_part, parts_of(placed, sizes), what="features of symbols", total=sizes.height)
    masked, moves = zip(*done, strict=True)
    shared = pl.concat(moves)
    if across.names:
        sides = across_columns(shared, across, universe=members)
        masked = tuple(part.hstack(side) for part, side in zip(masked, sides, strict=True))
    whole = pl.concat(masked)
    names = ("symbol", "ts", "close", *features.names)
    return pl.DataFrame([whole.get_column(name) for name in names]), shared  # no copy
