"""In: stored bars of some symbols, a folder. Out: their own features in it; only what changed is computed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from klinepred.features.columns import Plan, own_columns, parts_of, placed_bars, plans, sizes_of
from klinepred.features.cross import CROSS_INPUT
from klinepred.features.kept import read_kept, write_kept
from klinepred.features.price import LONGEST_SESSION
from klinepred.features.spec import FeatureSet
from klinepred.features.workers import each
from klinepred.paths import file_name
from klinepred.schema import CALENDAR, VALUES, Bars

SETTLED: Final = 4
"""Lookbacks of history before a bar that is computed anew: what an average that never quite forgets still has of older
bars, 1e-6 after one, is below the last digit of Float32 by then."""
MARK: Final = "_mark"
"""A digest of all bars of the symbol up to this one: where it differs, everything from there on is computed anew."""
QUARTER: Final = pl.format("{}Q{}", pl.col("ts").dt.year(), pl.col("ts").dt.quarter())


@dataclass(frozen=True)
class Quarter:
    """A symbol's rows of a quarter: where, how many, the mark of the last."""

    path: Path
    rows: int
    mark: int


@dataclass(frozen=True)
class Refreshed:
    """What there is of some symbols: files by quarter and symbol, clocks, bars, and those computed this time."""

    quarters: dict[str, dict[str, Quarter]]
    calendars: dict[str, str]
    bars: int
    computed: int


def refresh(symbols: Sequence[str], *, bars: Bars, features: FeatureSet, place: Path) -> Refreshed:
    """Bring the own features of `symbols` in `place` up to date.

    Raises
    ------
    FeatureError
        As `klinepred.features.build.build_features`.
    """
    own = plans(features, pl.Float32())[0]
    batch = bars.filter(pl.col("symbol").is_in(symbols)).collect().sort("symbol", "ts")
    names = sizes_of(batch).get_column("value").to_list()
    homes = [place / "own" / file_name(name) for name in names]
    parts = zip(parts_of(batch, sizes_of(batch)), homes, strict=True)
    looks = each(lambda one: _look(*one), parts, what="symbols compared", total=len(homes))
    stale = sum(look.bars.height - look.keep for look in looks)
    # by far the cheapest way to place many bars is all at once
    whole = placed_bars(batch) if stale * 2 > batch.height else None
    spots = [None] * len(looks) if whole is None else list(parts_of(whole, sizes_of(whole)))
    due = zip(looks, homes, spots, strict=True)
    each(lambda one: _refresh(*one, features, own), due, what="features of symbols", total=len(homes))
    quarters: dict[str, dict[str, Quarter]] = {}
    for name, home, look in zip(names, homes, looks, strict=True):
        for row in look.quarters.iter_rows(named=True):
            part = Quarter(home / f"{row['_quarter']}.arrow", row["len"], row[MARK])
            quarters.setdefault(row["_quarter"], {})[name] = part
    calendars = {name: str(look.bars.item(0, CALENDAR)) for name, look in zip(names, looks, strict=True)}
    return Refreshed(quarters, calendars, bars=batch.height, computed=stale)


@dataclass(frozen=True)
class _Look:
    """Bars of a symbol with mark and quarter; how many of the first are known, of how many; `len`, mark of quarters."""

    bars: pl.DataFrame
    keep: int
    known: int
    quarters: pl.DataFrame


def _look(bars: pl.DataFrame, home: Path) -> _Look:
    """Compare the bars of one symbol with those that the files in `home` were made of."""
    bars = bars.with_columns(pl.Series(MARK, _marks(bars)), _quarter=QUARTER)
    known = [table for path in sorted(home.glob("*.arrow")) if (table := read_kept(path, ["ts", MARK])) is not None]
    old = pl.concat(known) if known else bars.select("ts", MARK).clear()
    both = min(old.height, bars.height)
    same = (old["ts"].head(both) == bars["ts"].head(both)) & (old[MARK].head(both) == bars[MARK].head(both))
    keep = both if bool(same.all()) else int(same.arg_min() or 0)
    quarters = bars.group_by("_quarter", maintain_order=True).agg(pl.len(), pl.col(MARK).last())
    return _Look(bars, keep, old.height, quarters)


def _refresh(look: _Look, home: Path, placed: pl.DataFrame | None, features: FeatureSet, plan: Plan) -> None:
    """Files of one symbol brought up to date; stopped at any moment, what is there is a true beginning.

    Parameters
    ----------
    placed
        `look.bars` with their place on the calendar; None = to be found out for the rows that need it.
    """
    bars, keep = look.bars, look.keep
    if keep == bars.height == look.known:
        return
    edge = bars.item(min(keep, bars.height - 1), "_quarter")
    begun = int((bars["_quarter"].head(keep) == edge).sum())
    head = read_kept(home / f"{edge}.arrow") if begun else None
    rows = _tail(bars, placed, keep, features, plan)
    if head is not None:
        rows = pl.concat([head.head(begun).with_columns(_quarter=pl.lit(edge)), rows])
    for path in sorted(home.glob("*.arrow"), reverse=True):
        if path.stem >= edge:
            path.unlink()
    for (quarter,), part in rows.group_by("_quarter", maintain_order=True):
        write_kept(part.drop("_quarter"), home / f"{quarter}.arrow")


def _tail(bars: pl.DataFrame, placed: pl.DataFrame | None, keep: int, features: FeatureSet, plan: Plan) -> pl.DataFrame:
    """Own features from row `keep` on, from as many bars and whole sessions before as they look back over."""
    near = keep - SETTLED * features.lookback_bars
    far = max(0, near - (features.lookback_sessions + 1) * LONGEST_SESSION)
    placed = placed_bars(bars.slice(far).drop(MARK, "_quarter")) if placed is None else placed.slice(far)
    start = max(0, near) - far
    if features.lookback_sessions:
        sessions = placed.get_column("session").head(keep - far + 1)
        first = sessions.unique().sort().tail(features.lookback_sessions + 1)[0]
        start = min(start, int((sessions < first).sum()))
    values = own_columns(placed.slice(start), plan).with_columns(plan.masks).slice(keep - far - start)
    return values.select(
        "ts",
        "close",
        bars[MARK].slice(keep),
        pl.Series("_row", np.arange(keep + 1, bars.height + 1, dtype=np.int64)),
        *CROSS_INPUT,
        *plan.names,
        bars["_quarter"].slice(keep),
    )


def _marks(bars: pl.DataFrame) -> npt.NDArray[np.uint64]:
    """Digest of the symbol's bars up to each one: sums, modulo 2^64, of a digest of each bar with its calendar."""
    seed = int.from_bytes(hashlib.sha256(str(bars.item(0, CALENDAR)).encode()).digest()[:8], "big")
    return np.cumsum(bars.select("ts", *VALUES).hash_rows(seed=seed).to_numpy())
