"""In: symbols and a span to delete, or a version to go back to. Out: one commit that does it; nothing is lost by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl

from klinepred.bars import tables
from klinepred.bars.clocks import read_symbols
from klinepred.bars.commits import find_version, list_versions
from klinepred.bars.difference import compare_parts
from klinepred.bars.lock import WAIT_S
from klinepred.bars.store import need_store, need_symbols
from klinepred.bars.tables import BARS, SCHEMAS, SYMBOLS
from klinepred.bars.turn import store_writer
from klinepred.errors import StoreError
from klinepred.paths import Workspace


@dataclass(frozen=True)
class Undone:
    """What a delete or a restore does.

    Attributes
    ----------
    before, after
        Version of the bars table it starts from, and the one it made (the same where nothing was to do, or in a
        rehearsal).
    rows
        symbol, before, after (bars), changed (bars of both with other values); only symbols that differ.
    """

    before: int
    after: int
    rows: pl.DataFrame

    @property
    def gone(self) -> int:
        """Bars fewer than before, over the symbols that lose any."""
        return int(self.rows.select((pl.col("before") - pl.col("after")).clip(0).sum()).item())


def delete_bars(
    space: Workspace,
    symbols: Sequence[str],
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    rehearse: bool = False,
    expect: int | None = None,
    wait_s: float = WAIT_S,
) -> Undone:
    """Take the bars of `symbols` with `start <= ts < end` out of the store, as one commit.

    Older versions keep them: `restore_bars` brings them back. A symbol that has no bar left loses its clock and source
    too, and may be taken in by another calendar or from elsewhere.

    Parameters
    ----------
    rehearse
        Only say what would be done.
    expect
        Number of bars that the caller was told of; another number now is an error.

    Raises
    ------
    StoreError
        Nothing is stored, a symbol is unknown, other bars than expected would go, or the store cannot be written.
    """
    need_store(space)
    start, end = (None if stamp is None else stamp.astimezone(UTC) for stamp in (start, end))
    names = list(dict.fromkeys(symbols))
    with store_writer(space, wait_s=wait_s):
        need_symbols(space, names)
        version = list_versions(space.store / BARS)[-1]
        inside = pl.col("symbol").is_in(names)
        if start is not None:
            inside &= pl.col("ts") >= pl.lit(start)
        if end is not None:
            inside &= pl.col("ts") < pl.lit(end)
        counts = tables.scan_table(space.store, BARS).filter(pl.col("symbol").is_in(names)).group_by("symbol")
        rows = (
            counts.agg(before=pl.len().cast(pl.Int64), after=(~inside).sum().cast(pl.Int64))
            .with_columns(changed=pl.lit(0, pl.Int64))
            .filter(pl.col("after") < pl.col("before"))
            .sort("symbol")
            .collect()
        )
        found = Undone(version, version, rows)
        if expect is not None and found.gone != expect:
            raise StoreError(
                f"delete {', '.join(names[:10])}",
                expected=f"{expect:,} bars, as counted before",
                got=f"{found.gone:,}: another ingest was faster",
                do="run the same command again and look at the new number",
            )
        if rehearse or not found.gone:
            return found
        span = f"{f' from {start:%Y-%m-%dT%H:%M:%SZ}' if start else ''}{f' to {end:%Y-%m-%dT%H:%M:%SZ}' if end else ''}"
        note = {
            "klinepred.operation": "delete",
            "klinepred.source": f"{', '.join(names)}{span}",
            "klinepred.deleted": str(found.gone),
        }
        left = read_symbols(space.store).filter(
            ~pl.col("symbol").is_in(rows.filter(pl.col("after") == 0)["symbol"].to_list())
        )
        _put_symbols(space, left, note=note)
        months = f"{start:%Y-%m}" if start else "", f"{end:%Y-%m}" if end else "~"
        tables.overwrite(space.store, BARS, pl.DataFrame(schema=SCHEMAS[BARS]), note=note, where=inside, months=months)
        return Undone(version, list_versions(space.store / BARS)[-1], rows)


def restore_bars(space: Workspace, as_of: int | datetime, *, rehearse: bool = False, wait_s: float = WAIT_S) -> Undone:
    """Make the bars what they were at `as_of`, as a new commit; what is undone by it can be restored in its turn.

    The symbols that have bars then get the calendar, hours and source they had then; others lose theirs. The quarantine
    stays as it is.

    Parameters
    ----------
    rehearse
        Only say what would change.

    Raises
    ------
    StoreError
        There is no such version, it was vacuumed, or the store cannot be written.
    """
    need_store(space)
    folder = space.store / BARS
    with store_writer(space, wait_s=wait_s):
        target = find_version(folder, as_of)
        version, old = tables.read_parts(space.store, BARS)
        _, new = tables.read_parts(space.store, BARS, target)
        tables.need_parts(folder, new, version=target)
        remove = [part for part in old if part.path not in {other.path for other in new}]
        add = [part for part in new if part.path not in {other.path for other in old}]
        counts = [
            tables.scan_parts(folder, BARS, parts).group_by("symbol").agg(pl.len().cast(pl.Int64).alias(name))
            for name, parts in (("before", old), ("after", new))
        ]
        both = counts[0].join(counts[1], on="symbol", how="full", coalesce=True).fill_null(0).collect()
        differences = compare_parts(folder, remove, add)
        rows = both.join(differences, on="symbol").select("symbol", "before", "after", "changed").sort("symbol")
        kept = read_symbols(space.store, target)
        kept = kept.filter(pl.col("symbol").is_in(both.filter(pl.col("after") > 0)["symbol"].to_list()))
        same = kept.sort("symbol").equals(read_symbols(space.store).sort("symbol"))
        found = Undone(version, version, rows)
        if rehearse or (rows.is_empty() and same):
            return found
        note = {"klinepred.operation": "restore", "klinepred.source": f"version {target}"}
        _put_symbols(space, kept, note=note)
        with tables.writing(space.store, BARS, 0):
            after = tables.put(space.store, BARS, add=add, remove=remove, note=note)
        return Undone(version, after, rows)


def _put_symbols(space: Workspace, table: pl.DataFrame, *, note: Mapping[str, str]) -> None:
    """Make `table` the latest version of the symbols: the one that the next commit of bars names as its own."""
    table = table.sort("symbol")
    if not table.equals(tables.scan_table(space.store, SYMBOLS).collect().sort("symbol")):
        tables.overwrite(space.store, SYMBOLS, table, note=note)
