"""In: bars of any symbols, a feature set, a universe. Out: `FeatureFrame`: one row per bar, one column per feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from klinepred.calendar import place
from klinepred.errors import FeatureError
from klinepred.features.clock import CLOCK
from klinepred.features.cross import CROSS, cross_columns
from klinepred.features.prepare import prepare
from klinepred.features.price import PRICE
from klinepred.features.spec import FeatureSet
from klinepred.features.trend import TREND
from klinepred.features.volatility import VOLATILITY
from klinepred.features.volume import VOLUME
from klinepred.schema import BAR_SCHEMA, CALENDAR, Bars

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
    table = bars.lazy().collect().sort("symbol", "ts")
    missing = [name for name in (*BAR_SCHEMA, CALENDAR) if name not in table.columns]
    if missing:
        raise FeatureError(
            "bars for features",
            expected=f"columns {', '.join(BAR_SCHEMA)} and {CALENDAR}",
            got=f"no {', '.join(missing)}",
            do="take bars from scan_bars, or make them with check_bars(frame, clock=Clock('XNYS'))",
        )
    placed = place(table)
    _on_grid(placed)
    calendars = {s: str(c) for s, c in placed.select("symbol", CALENDAR).unique(maintain_order=True).iter_rows()}
    members = tuple(universe) if universe is not None else tuple(sorted(calendars))
    own = [feature.column() for feature in features.features if feature.family != "cross"]
    across = [feature.column() for feature in features.features if feature.family == "cross"]
    parts = [_one_symbol(part, own) for part in placed.partition_by("symbol", maintain_order=True)]
    joined = pl.concat(parts) if parts else _one_symbol(placed, own)
    crossed = cross_columns(joined, universe=members)
    inner = ["symbol", "_z", "_market", "_rank"]
    sides = [part.select(across) for part in crossed.select(inner).partition_by("symbol", maintain_order=True)]
    side = pl.concat(sides) if sides else crossed.select(inner).select(across)
    whole = pl.concat([joined, side], how="horizontal")
    frame = whole.select("symbol", "ts", "close", *(pl.col(name).cast(pl.Float32) for name in features.names))
    # a Float64 beyond Float32 becomes infinite in the cast
    frame = frame.with_columns(pl.when(pl.col(name).is_finite()).then(name).alias(name) for name in features.names)
    return FeatureFrame(frame, features, members, calendars)


def _one_symbol(bars: pl.DataFrame, columns: list[pl.Expr]) -> pl.DataFrame:
    return prepare(bars).select("symbol", "ts", "close", *columns)


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
