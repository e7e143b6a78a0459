"""In: stored bars, a feature set, a folder. Out: all their features; only what changed since last time is computed."""

# Under the folder: SET/own/SYMBOL/2025Q2.arrow (a symbol's own features and what the cross-section reads of it) and
# SET/across/UNIVERSE/2025Q2-KEY.arrow (features of the cross-section, all symbols).

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl
from filelock import FileLock

from klinepred.engine.engine import HERE, Engine
from klinepred.features.build import FeatureFrame
from klinepred.features.columns import across_columns, plans
from klinepred.features.cross import CROSS_BARS, CROSS_INPUT
from klinepred.features.kept import read_kept, tools, whole, write_kept
from klinepred.features.refresh import QUARTER, Quarter, refresh
from klinepred.features.spec import FeatureSet
from klinepred.headway import stepwise
from klinepred.schema import Bars

BATCH_ROWS: Final = 1_000_000
"""Bars read at once: whole symbols."""
SHARES: Final = 3
"""Groups of symbols for each of several workers: one that is done early takes another."""


@dataclass(frozen=True)
class KeptFile:
    """Own features of a symbol in a quarter, which the file is named after; how many bars."""

    symbol: str
    path: Path
    rows: int


@dataclass(frozen=True)
class Cached:
    """Where the features of some bars lie.

    Attributes
    ----------
    own, across
        Files in order of symbol and quarter; of quarter. `across` is empty where the set has no cross-section.
    bars, computed
        Bars that there are, and those whose own features had to be computed this time.
    until
        Rows that open later are not to be read, though the files have them; None = all are.
    """

    features: FeatureSet
    universe: tuple[str, ...]
    calendars: dict[str, str]
    own: tuple[KeptFile, ...]
    across: tuple[Path, ...]
    bars: int
    computed: int
    until: datetime | None = None

    def frame(self) -> FeatureFrame:
        """All of it in memory, as `build_features` gives it: 4 bytes a value."""
        own, _ = plans(self.features, pl.Float32())
        frame = pl.concat(
            whole(file.path, ["ts", "close", *own.names]).with_columns(symbol=pl.lit(file.symbol)) for file in self.own
        )
        if self.across:
            sides = pl.concat(whole(path) for path in self.across).sort("symbol", "ts")
            frame = pl.concat([frame, sides.drop("symbol", "ts")], how="horizontal")
        columns = frame.select("symbol", "ts", "close", *self.features.names)
        columns = columns if self.until is None else columns.filter(pl.col("ts") <= self.until)
        return FeatureFrame(columns, self.features, self.universe, self.calendars)


@contextmanager
def kept_features(bars: Bars, features: FeatureSet, *, universe: Sequence[str], folder: Path) -> Iterator[Cached]:
    """`cached_features`, whose files no other process changes for the length of a block.

    Parameters, errors as for `cached_features`.
    """
    with _locked(folder, features):
        yield cached_features(bars, features, universe=universe, folder=folder)


def cached_features(
    bars: Bars, features: FeatureSet, *, universe: Sequence[str], folder: Path, engine: Engine = HERE
) -> Cached:
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
    engine
        Who works through the groups of symbols, then through the quarters of the cross-section: one after another
        here, or many at once on a cluster, whose machines all see `folder` and the bars.

    Raises
    ------
    FeatureError
        As `build_features`.
    """
    across = plans(features, pl.Float32())[1]
    place = _place(folder, features)
    calendars: dict[str, str] = {}
    quarters: dict[str, dict[str, Quarter]] = {}
    total = computed = 0
    with _locked(folder, features):
        work = partial(refresh, bars=bars, features=features, place=place)
        groups = _groups(bars, workers=engine.workers)
        for done in stepwise(engine.map(work, groups), "features, groups of symbols", total=len(groups)):
            for quarter, parts in done.quarters.items():
                quarters.setdefault(quarter, {}).update(parts)
            calendars |= done.calendars
            total, computed = total + done.bars, computed + done.computed
        sides = _cross(quarters, place / "across", features, universe, engine) if across.names else []
    own = [(name, quarters[q][name]) for name in calendars for q in sorted(quarters) if name in quarters[q]]
    files = [KeptFile(name, part.path, part.rows) for name, part in own]
    return Cached(features, tuple(universe), calendars, tuple(files), tuple(sides), bars=total, computed=computed)


def _place(folder: Path, features: FeatureSet) -> Path:
    return folder / f"{features.fingerprint}-{tools()}"


def _locked(folder: Path, features: FeatureSet) -> FileLock:
    """The lock of a set's folder; taken twice by one thread it is one."""
    place = _place(folder, features)
    place.mkdir(parents=True, exist_ok=True)
    return FileLock(place / ".lock", is_singleton=True)


def _groups(bars: Bars, *, workers: int) -> list[list[str]]:
    """Whole symbols, sorted; of about `BATCH_ROWS` bars together, fewer where several workers share them."""
    sizes = bars.group_by("symbol").agg(pl.len()).collect(engine="streaming").sort("symbol")
    share = sizes.get_column("len").sum() // (SHARES * workers) if workers > 1 else BATCH_ROWS
    group = (sizes.get_column("len").cum_sum() - 1) // min(BATCH_ROWS, max(1, share))
    parts = sizes.with_columns(group=group).group_by("group", maintain_order=True)
    return [part.get_column("symbol").to_list() for _, part in parts]


@dataclass(frozen=True)
class _Slice:
    """A quarter whose cross-section is to be computed: the quarters it reads, itself the last; where it goes."""

    reads: tuple[Mapping[str, Quarter], ...]
    name: str
    path: Path


def _cross(
    quarters: Mapping[str, Mapping[str, Quarter]],
    home: Path,
    features: FeatureSet,
    universe: Sequence[str],
    engine: Engine,
) -> list[Path]:
    """Files of the cross-section, one a quarter, computed where a bar up to its end changed."""
    names = sorted({name for parts in quarters.values() for name in parts})
    who = "\n".join([*sorted(universe), "", *names])
    place = home / hashlib.sha256(who.encode()).hexdigest()[:16]
    place.mkdir(parents=True, exist_ok=True)
    order = sorted(quarters)
    key, out, due = "", [], []
    for number, quarter in enumerate(order):
        marks = [f"{name}\n{part.mark}" for name, part in quarters[quarter].items()]
        key = hashlib.sha256("\n".join([key, *marks]).encode()).hexdigest()[:16]
        path = place / f"{quarter}-{key}.arrow"
        out.append(path)
        if read_kept(path, ["ts"]) is not None:
            continue
        for other in place.glob(f"{quarter}-*.arrow"):
            other.unlink()
        due.append(_Slice(_reads([quarters[name] for name in order[: number + 1]]), quarter, path))
    work = partial(_cross_slice, features=features, universe=universe)
    for _ in stepwise(engine.map(work, due), "features across symbols, quarters", total=len(due)):
        pass
    return out


def _reads(quarters: Sequence[Mapping[str, Quarter]]) -> tuple[Mapping[str, Quarter], ...]:
    """Of quarters in their order the last, and those before it that hold `CROSS_BARS` of each of its symbols."""
    last, before = quarters[-1], quarters[:-1]
    first = len(before)
    lack = dict.fromkeys(last, CROSS_BARS)
    while first and max(lack.values()) > 0:
        first -= 1
        lack = {name: want - (before[first][name].rows if name in before[first] else 0) for name, want in lack.items()}
    return tuple(quarters[first:])


def _cross_slice(one: _Slice, *, features: FeatureSet, universe: Sequence[str]) -> None:
    """Compute the cross-section of a quarter from the files of its symbols, and write it."""
    moves = _moves(one.reads)
    sides = pl.concat(across_columns(moves, plans(features, pl.Float32())[1], universe=universe))
    rows = pl.concat([moves.select("symbol", "ts"), sides], how="horizontal")
    write_kept(rows.filter(one.name == QUARTER), one.path)


def _moves(quarters: Sequence[Mapping[str, Quarter]]) -> pl.DataFrame:
    """What the cross-section of the last quarter reads: its rows, and `CROSS_BARS` of every symbol before them."""
    last = quarters[-1]
    tables, begin = [], None
    for name in sorted({name for parts in quarters for name in parts}):
        own = [_moves_of(parts[name].path, name) for parts in quarters if name in parts]
        tables += own
        if name in last:
            rows = pl.concat(own).get_column("ts").tail(last[name].rows + CROSS_BARS)
            begin = rows[0] if begin is None else min(begin, rows[0])
    return pl.concat(tables).filter(pl.col("ts") >= begin)


def _moves_of(path: Path, symbol: str) -> pl.DataFrame:
    return whole(path, ["ts", "_row", *CROSS_INPUT]).select(pl.lit(symbol).alias("symbol"), "ts", "_row", *CROSS_INPUT)
