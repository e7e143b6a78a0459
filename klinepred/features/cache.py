"""In: stored bars, a feature set, a folder. Out: all their features; only what changed since last time is computed."""

# Under the folder: SET/own/SYMBOL/2025Q2.arrow (a symbol's own features and what the cross-section reads of it) and
# SET/across/UNIVERSE/2025Q2-KEY.arrow (features of the cross-section, all symbols).

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
from filelock import FileLock

from klinepred.errors import FeatureError
from klinepred.features.build import FeatureFrame
from klinepred.features.columns import Plan, across_columns, own_columns, parts_of, placed_bars, plans, sizes_of
from klinepred.features.cross import CROSS_BARS, CROSS_INPUT
from klinepred.features.kept import read_kept, tools, write_kept
from klinepred.features.price import LONGEST_SESSION
from klinepred.features.spec import FeatureSet
from klinepred.features.workers import each
from klinepred.paths import file_name
from klinepred.schema import CALENDAR, VALUES, Bars

BATCH_ROWS: Final = 1_000_000
"""Bars read at once: whole symbols."""
SETTLED: Final = 4
"""Lookbacks of history before a bar that is computed anew: what an average that never quite forgets still has of older
bars, 1e-6 after one, is below the last digit of Float32 by then."""
MARK: Final = "_mark"
"""A digest of all bars of the symbol up to this one: where it differs, everything from there on is computed anew."""
_QUARTER: Final = pl.format("{}Q{}", pl.col("ts").dt.year(), pl.col("ts").dt.quarter())


@dataclass(frozen=True)
class Cached:
    """Where the features of some bars lie.

    Attributes
    ----------
    own, across
        Files in order of symbol and quarter; of quarter. `across` is empty where the set has no cross-section.
    bars, computed
        Bars that there are, and those whose own features had to be computed this time.
    """

    features: FeatureSet
    universe: tuple[str, ...]
    calendars: dict[str, str]
    own: tuple[tuple[str, Path], ...]
    across: tuple[Path, ...]
    bars: int
    computed: int

    def frame(self) -> FeatureFrame:
        """All of it in memory, as `build_features` gives it: 4 bytes a value."""
        own, _ = plans(self.features, pl.Float32())
        frame = pl.concat(
            _whole(path, ["ts", "close", *own.names]).with_columns(symbol=pl.lit(symbol)) for symbol, path in self.own
        )
        if self.across:
            sides = pl.concat(_whole(path) for path in self.across).sort("symbol", "ts")
            frame = pl.concat([frame, sides.drop("symbol", "ts")], how="horizontal")
        columns = frame.select("symbol", "ts", "close", *self.features.names)
        return FeatureFrame(columns, self.features, self.universe, self.calendars)


def cached_frame(bars: Bars, features: FeatureSet, *, universe: Sequence[str], folder: Path) -> FeatureFrame:
    """What `build_features` gives, by way of `folder`; no other process changes it before all is read.

    Parameters, errors as for `cached_features`.
    """
    with _locked(folder, features):
        return cached_features(bars, features, universe=universe, folder=folder).frame()


def cached_features(bars: Bars, features: FeatureSet, *, universe: Sequence[str], folder: Path) -> Cached:
    """Bring the features of `bars` in `folder` up to date, a few symbols at a time.

    Bars that are there as they were when their features were computed cost a look at their digest. Of the others, the
    first one and all later ones of its symbol are computed from `SETTLED` times `lookback` bars and its sessions before
    it: as the whole history gives them, but for the last digit here and there. The cross-section of a quarter is
    computed where any bar of it or of an earlier quarter changed. One process at a time.

    Parameters
    ----------
    universe
        Symbols the cross-section is taken over; those in `bars` beyond it are measured against it.
    folder
        Belongs to this function: what is in it may be deleted at any time.

    Raises
    ------
    FeatureError
        As `build_features`.
    """
    own, across = plans(features, pl.Float32())
    place = _place(folder, features)
    calendars: dict[str, str] = {}
    quarters: dict[str, dict[str, _Quarter]] = {}
    total = computed = 0
    with _locked(folder, features):
        for batch in _batches(bars):
            names = sizes_of(batch).get_column("value").to_list()
            homes = [place / "own" / file_name(name) for name in names]
            looks = each(lambda one: _look(*one), zip(parts_of(batch, sizes_of(batch)), homes, strict=True))
            stale = sum(look.bars.height - look.keep for look in looks)
            # by far the cheapest way to place many bars is all at once
            whole = placed_bars(batch) if stale * 2 > batch.height else None
            spots = [None] * len(looks) if whole is None else list(parts_of(whole, sizes_of(whole)))
            each(lambda one: _refresh(*one, features, own), zip(looks, homes, spots, strict=True))
            for name, home, look in zip(names, homes, looks, strict=True):
                for row in look.quarters.iter_rows(named=True):
                    part = _Quarter(home / f"{row['_quarter']}.arrow", row["len"], row[MARK])
                    quarters.setdefault(row["_quarter"], {})[name] = part
                calendars[name] = str(look.bars.item(0, CALENDAR))
            total, computed = total + batch.height, computed + stale
        sides = _cross(quarters, place / "across", across, universe) if across.names else []
    files = [(name, quarters[q][name].path) for name in calendars for q in sorted(quarters) if name in quarters[q]]
    return Cached(features, tuple(universe), calendars, tuple(files), tuple(sides), bars=total, computed=computed)


def _place(folder: Path, features: FeatureSet) -> Path:
    return folder / f"{features.fingerprint}-{tools()}"


def _locked(folder: Path, features: FeatureSet) -> FileLock:
    """The lock of a set's folder; taken twice by one thread it is one."""
    place = _place(folder, features)
    place.mkdir(parents=True, exist_ok=True)
    return FileLock(place / ".lock", is_singleton=True)


@dataclass(frozen=True)
class _Quarter:
    """A symbol's rows of a quarter: where, how many, the mark of the last."""

    path: Path
    rows: int
    mark: int


@dataclass(frozen=True)
class _Look:
    """Bars of a symbol with mark and quarter; how many of the first are known, of how many; `len`, mark of quarters."""

    bars: pl.DataFrame
    keep: int
    known: int
    quarters: pl.DataFrame


def _look(bars: pl.DataFrame, home: Path) -> _Look:
    """Compare the bars of one symbol with those that the files in `home` were made of."""
    bars = bars.with_columns(pl.Series(MARK, _marks(bars)), _quarter=_QUARTER)
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


def _batches(bars: Bars) -> Iterator[pl.DataFrame]:
    """Bars of whole symbols, sorted; about `BATCH_ROWS` at once."""
    sizes = bars.group_by("symbol").agg(pl.len()).sort("symbol").collect()
    group = (sizes.get_column("len").cum_sum() - 1) // BATCH_ROWS
    for _, part in sizes.with_columns(group=group).group_by("group", maintain_order=True):
        names = part.get_column("symbol").to_list()
        yield bars.filter(pl.col("symbol").is_in(names)).collect().sort("symbol", "ts")


def _cross(
    quarters: Mapping[str, Mapping[str, _Quarter]], home: Path, plan: Plan, universe: Sequence[str]
) -> list[Path]:
    """Files of the cross-section, one a quarter, computed where a bar up to its end changed."""
    names = sorted({name for parts in quarters.values() for name in parts})
    who = "\n".join([*sorted(universe), "", *names])
    place = home / hashlib.sha256(who.encode()).hexdigest()[:16]
    place.mkdir(parents=True, exist_ok=True)
    key, out = "", []
    for number, quarter in enumerate(sorted(quarters)):
        marks = [f"{name}\n{part.mark}" for name, part in quarters[quarter].items()]
        key = hashlib.sha256("\n".join([key, *marks]).encode()).hexdigest()[:16]
        path = place / f"{quarter}-{key}.arrow"
        out.append(path)
        if read_kept(path, ["ts"]) is not None:
            continue
        for other in place.glob(f"{quarter}-*.arrow"):
            other.unlink()
        moves = _moves([quarters[name] for name in sorted(quarters)[: number + 1]])
        sides = pl.concat(across_columns(moves, plan, universe=universe))
        rows = pl.concat([moves.select("symbol", "ts"), sides], how="horizontal")
        write_kept(rows.filter(quarter == _QUARTER), path)
    return out


def _moves(quarters: Sequence[Mapping[str, _Quarter]]) -> pl.DataFrame:
    """What the cross-section of the last quarter reads: its rows, and `CROSS_BARS` of every symbol before them."""
    last, before = quarters[-1], quarters[:-1]
    first = len(before)
    lack = dict.fromkeys(last, CROSS_BARS)
    while first and max(lack.values()) > 0:
        first -= 1
        lack = {name: want - (before[first][name].rows if name in before[first] else 0) for name, want in lack.items()}
    tables, begin = [], None
    for name in sorted({name for parts in quarters[first:] for name in parts}):
        own = [_moves_of(parts[name].path, name) for parts in quarters[first:] if name in parts]
        tables += own
        if name in last:
            rows = pl.concat(own).get_column("ts").tail(last[name].rows + CROSS_BARS)
            begin = rows[0] if begin is None else min(begin, rows[0])
    return pl.concat(tables).filter(pl.col("ts") >= begin)


def _moves_of(path: Path, symbol: str) -> pl.DataFrame:
    return _whole(path, ["ts", "_row", *CROSS_INPUT]).select(pl.lit(symbol).alias("symbol"), "ts", "_row", *CROSS_INPUT)


def _whole(path: Path, columns: list[str] | None = None) -> pl.DataFrame:
    """A file that was just brought up to date."""
    table = read_kept(path, columns)
    if table is None:
        raise FeatureError(
            f"computed features in {path.parent}",
            expected=f"{path.name} as it was written a moment ago",
            got="another content, or none: something else writes there, or the disk fails",
            do="run the command again; data/features of the workspace may be deleted at any time",
        )
    return table
