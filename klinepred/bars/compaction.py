"""In: a store whose months lie in many files. Out: the same bars in few sorted files, one commit a month."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from klinepred.bars import tables
from klinepred.bars.clocks import bound_version
from klinepred.bars.groups import groups
from klinepred.bars.lock import WAIT_S
from klinepred.bars.parts import MONTH, write_parts
from klinepred.bars.tables import BARS, BOUND
from klinepred.bars.turn import store_writer
from klinepred.errors import StoreError
from klinepred.headway import stepwise
from klinepred.paths import Workspace

log = logging.getLogger("klinepred.bars")

MOST_FILES: Final = 32
"""A month in more files than this is rewritten at the end of an ingest."""
FILE_ROWS: Final = 1_000_000
"""Bars of one rewritten file, unless a single symbol has more in the month."""


@dataclass(frozen=True)
class Compacted:
    """A month rewritten: its files before and after, its bars, the version made."""

    month: str
    before: int
    after: int
    bars: int
    version: int


def compact(space: Workspace, *, most: int = MOST_FILES, wait_s: float = WAIT_S) -> list[Compacted]:
    """Rewrite each month that lies in more than `most` files, sorted by symbol and time, into few.

    The new files are read back and compared with the old ones before the commit. The old ones stay on the disk for the
    versions that need them. Stopped at any moment, the store is as it was or as it should become.

    Raises
    ------
    StoreError
        The store cannot be written, or what was written is not what was read.
    """
    done: list[Compacted] = []
    _, parts = tables.read_parts(space.store, BARS)
    for month in stepwise(sorted({str(part.month) for part in parts}), "months compacted"):
        if sum(part.month == month for part in parts) > most:
            with store_writer(space, wait_s=wait_s):
                done.extend(_rewrite(space, month, most))
    return done


def compact_after(space: Workspace, *, wait_s: float = WAIT_S) -> None:
    """`compact` after an ingest: what was taken in stays in, so a failure is only warned of."""
    try:
        for month in compact(space, wait_s=wait_s):
            log.debug("%s: %d files rewritten into %d", month.month, month.before, month.after)
    except StoreError as error:
        log.warning("the bars are stored, but their files could not be compacted: %s", error)


def _rewrite(space: Workspace, month: str, most: int) -> Iterator[Compacted]:
    """The caller holds the writer's lock."""
    folder = space.store / BARS
    number, parts = tables.read_parts(space.store, BARS)  # again: another process may have been here first
    old = [part for part in parts if part.month == month]
    if len(old) <= most:
        return
    tables.need_parts(folder, old, version=number)
    rows = sum(part.rows for part in old)
    with tables.writing(space.store, BARS, rows) as made:
        scan = tables.scan_parts(folder, BARS, old)
        sizes = scan.group_by("symbol").len().sort("symbol").collect()
        for names in groups(sizes, most=FILE_ROWS):
            bars = scan.filter(pl.col("symbol").is_in(names)).collect().sort("symbol", "ts")
            (part,) = write_parts(folder, bars.with_columns(pl.lit(month).alias(MONTH)))
            made.append(part)
            if not tables.scan_parts(folder, BARS, [part]).collect().equals(bars):
                raise _damaged(folder / part.path)
        if sum(part.rows for part in made) != scan.select(pl.len()).collect().item():
            raise _damaged(folder / f"{MONTH}={month}")
        bound = bound_version(space.store)
        note = {
            "klinepred.operation": "compact",
            "klinepred.source": f"{month}: {len(old)} files into {len(made)}",
            **({} if bound is None else {BOUND: str(bound)}),
        }
        version = tables.put(space.store, BARS, add=made, remove=old, note=note, changes=False)
    yield Compacted(month, len(old), len(made), rows, version)


def _damaged(place: object) -> StoreError:
    return StoreError(
        f"compaction of {place}",
        expected="files that hold the same bars as those they replace",
        got="other rows when read back",
        do="check the disk and its file system; the store is as it was",
    )
