"""In: new and revised bars, bars to take out, rescaled histories. Out: one commit of the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from klinepred.bars import tables
from klinepred.bars.check import check_bars
from klinepred.bars.parts import MONTH
from klinepred.bars.tables import BARS
from klinepred.calendar import Clock
from klinepred.paths import Workspace
from klinepred.schema import BAR_SCHEMA


@dataclass(frozen=True)
class Change:
    """What one commit does to the stored bars; no bar is in two of the frames.

    Attributes
    ----------
    new, revised
        Bars to add, and bars that replace stored ones; at least `BAR_SCHEMA` and `month`.
    withdrawn
        Stored bars that go (symbol, ts).
    whole
        Symbols of which this is all there will be: every stored bar of theirs is replaced.
    note
        What the commit says of itself.
    """

    new: pl.DataFrame
    revised: pl.DataFrame
    withdrawn: pl.DataFrame
    whole: pl.DataFrame
    note: Mapping[str, str]

    def symbols(self) -> set[str]:
        """Symbols whose stored bars change."""
        frames = (self.new, self.revised, self.withdrawn, self.whole)
        return {str(name) for frame in frames for name in frame.get_column("symbol").unique()}


def commit_bars(space: Workspace, change: Change, *, stored: pl.DataFrame, clock: Clock, source: str) -> None:
    """Put bars in, as one commit. The caller holds the writer's lock.

    Parameters
    ----------
    stored
        What `read_around` gave for these bars, under the same lock.
    """
    note = {"klinepred.source": source, **change.note}
    whole, fresh = change.whole, pl.concat([change.new, change.revised])
    if whole.is_empty() and change.revised.is_empty() and change.withdrawn.is_empty():
        if fresh.height:
            check_bars(fresh, clock=clock)
            tables.append(space.store, BARS, fresh, note=note)
        return
    # Replace the smallest box of symbols and time that holds every revised bar. New bars outside the box must come
    # in the same commit, so the box is drawn around both. Symbols that are rescaled are replaced from end to end.
    keys = ["symbol", "ts"]
    spots = pl.concat([fresh.select(keys), change.withdrawn.select(keys)])
    box = spots.select(low=pl.col("ts").min(), high=pl.col("ts").max()).row(0, named=True)
    symbols = spots.get_column("symbol").unique().sort().to_list()
    inside = pl.col("symbol").is_in(symbols) & pl.col("ts").is_between(box["low"], box["high"])
    kept = stored.filter(inside).join(spots, on=keys, how="anti").select(*BAR_SCHEMA)
    parts = [fresh.select(*BAR_SCHEMA), kept, whole.select(*BAR_SCHEMA)]
    rows = pl.concat(parts).with_columns(pl.col("ts").dt.strftime("%Y-%m").alias(MONTH)).sort(keys)
    check_bars(rows, clock=clock)
    months = (f"{box['low']:%Y-%m}", f"{box['high']:%Y-%m}") if spots.height else ("~", "")
    if whole.height:
        inside |= pl.col("symbol").is_in(whole.get_column("symbol").unique().to_list())
        months = ("", "~")
    tables.overwrite(space.store, BARS, rows, note=note, where=inside, months=months)
