"""In: rows to keep for good. Out: an append-only Delta table, one commit an append; small files are folded together."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

import polars as pl
from deltalake import DeltaTable, Field
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType

from klinepred.bars.parts import Part, write_parts
from klinepred.bars.tables import open_table, reason, refuse_cut, writing
from klinepred.bars.transaction import commit
from klinepred.errors import StoreError

LEDGER: Final = "ledger"
"""The folder of the tables, below `data`."""
FOLD_FILES: Final = 64
"""So many small files are folded into one: a ledger that is followed gets a file with every bar."""
FOLD_EVERY: Final = 16
"""Appends from one look at the number of files to the next: opening the table is most of what an append costs."""
FOLD_ROWS: Final = 50_000
"""A file of more rows is not small."""
KEEP_S: Final = 86_400.0
"""Folded files stay on the disk this long, for readers that had opened the table before."""
_DELTA: Final = {
    pl.String: "string",
    pl.Float64: "double",
    pl.Int64: "long",
    pl.Boolean: "boolean",
    pl.Date: "date",
    pl.Datetime: "timestamp",
}


@dataclass(frozen=True)
class Table:
    """A table of the ledger.

    Attributes
    ----------
    name
        Its folder below the ledger's.
    schema
        Its columns; `bar_ts` is one of them, and files are skipped by it.
    """

    name: str
    schema: Mapping[str, pl.DataType]


def scan(folder: Path, table: Table, *, since: datetime | None = None) -> pl.LazyFrame:
    """Rows of `table` below `folder`, in no order; with `since` only those with `bar_ts >= since`.

    Raises
    ------
    StoreError
        The table is damaged.
    """
    number, parts = _live(folder, table)
    parts = [part for part in parts if since is None or (last := _last(part)) is None or last >= since]
    if not parts:
        return pl.LazyFrame(schema=dict(table.schema))
    paths = [part.locate(folder / table.name) for part in parts]
    gone = [path.name for path in paths if not path.is_file()]
    if gone:
        raise _damaged(folder / table.name, f"{len(gone)} of {len(paths)} data files of version {number} gone")
    try:
        refuse_cut(parts, folder / table.name)
    except StoreError as error:
        raise _damaged(folder / table.name, f"{error.summary} of {error.got} bytes, not {error.expected}") from error
    rows = _read(paths, table)
    return rows if since is None else rows.filter(pl.col("bar_ts") >= pl.lit(since, table.schema["bar_ts"]))


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Around the collection of what `scan` gives: a data file that proves damaged only as it is read is said so.

    Raises
    ------
    StoreError
        One is.
    """
    try:
        yield
    except pl.exceptions.ComputeError as error:
        raise _damaged(folder, f"a data file that cannot be read: {' '.join(str(error).split())[:160]}") from error


def _read(paths: list[Path], table: Table) -> pl.LazyFrame:
    """Rows of data files; null in a column that there was not yet when the file was written."""
    return pl.scan_parquet(
        paths,
        hive_partitioning=False,
        glob=False,
        schema=dict(table.schema),
        missing_columns="insert",
        extra_columns="ignore",
    )


def version(folder: Path, table: Table) -> int:
    """The newest version of `table`; -1 = there is none yet."""
    found = _open(folder, table)
    return -1 if found is None else found.version()


def append(folder: Path, table: Table, rows: pl.DataFrame) -> None:
    """Add `rows` in one commit; the caller holds the lock of `folder`. The first append makes the table.

    Raises
    ------
    StoreError
        They could not be written; the table is as it was.
    """
    with writing(folder, table.name, rows.height) as made:
        made.extend(_write(folder / table.name, rows.select(table.schema.keys())))
        number = _commit(folder, table, add=made, note={"operation": "append"})
    if number % FOLD_EVERY:
        return
    try:
        _name_columns(folder, table)
        _fold(folder, table)
    except (StoreError, DeltaError, OSError, pl.exceptions.PolarsError):  # the rows are in; the next append tries again
        return


def _name_columns(folder: Path, table: Table) -> None:
    """Tell other readers of Delta tables of columns that an older klinepred did not have."""
    found = _open(folder, table)
    if found is not None:
        had = {field.name for field in found.schema().fields}
        kinds = {name: PrimitiveType(_DELTA[dtype.base_type()]) for name, dtype in table.schema.items()}
        fresh = [Field(name, kind) for name, kind in kinds.items() if name not in had]
        if fresh:
            found.alter.add_columns(fresh)


def _fold(folder: Path, table: Table) -> None:
    """Put the rows of many small files into one, in a commit that changes no row; sweep up what no version needs."""
    _, parts = _live(folder, table)
    small = [part for part in parts if part.rows < FOLD_ROWS]
    if len(small) < FOLD_FILES:
        return
    home = folder / table.name
    rows = _read([part.locate(home) for part in small], table).collect()
    with writing(folder, table.name, rows.height) as made:
        made.extend(_write(home, rows.sort("bar_ts", maintain_order=True)))
        _commit(folder, table, add=made, remove=small, note={"operation": "fold"})
    needed = {part.locate(home) for part in _live(folder, table)[1]}
    for path in home.glob("part-*.parquet"):
        with suppress(OSError):
            if path not in needed and time.time() - path.stat().st_mtime > KEEP_S:
                path.unlink()


def _write(home: Path, rows: pl.DataFrame) -> list[Part]:
    """The rows as one data file that says from when to when its bars are."""
    low, high = rows.select(low=pl.col("bar_ts").min(), high=pl.col("bar_ts").max()).row(0)
    edges = {"minValues": {"bar_ts": _text(low)}, "maxValues": {"bar_ts": _text(high)}}
    return [
        replace(part, stats=json.dumps({"numRecords": rows.height, **edges, "nullCount": {"bar_ts": 0}}))
        for part in write_parts(home, rows)
    ]


def _commit(
    folder: Path, table: Table, *, add: list[Part], remove: list[Part] | None = None, note: Mapping[str, str]
) -> int:
    kinds = {column: _DELTA[dtype.base_type()] for column, dtype in table.schema.items()}
    about = {f"klinepred.{key}": text for key, text in note.items()}
    return commit(folder / table.name, schema=kinds, add=add, remove=remove or (), note=about, changes=not remove)


def _live(folder: Path, table: Table) -> tuple[int, list[Part]]:
    """The newest version and its data files; -1 and none where there is no table."""
    found = _open(folder, table)
    if found is None:
        return -1, []
    try:
        actions = pl.DataFrame(found.get_add_actions(flatten=True))
    except (DeltaError, OSError) as error:
        raise _damaged(folder / table.name, reason(error)) from error
    parts = []
    for row in actions.iter_rows(named=True):
        edges = {
            name: {"bar_ts": _text(row[f"{key}.bar_ts"])}
            for name, key in (("minValues", "min"), ("maxValues", "max"))
            if row.get(f"{key}.bar_ts") is not None
        }
        stats = json.dumps({"numRecords": row["num_records"] or 0, **edges})
        parts.append(Part(row["path"], None, row["size_bytes"], row["num_records"] or 0, stats))
    return found.version(), sorted(parts, key=lambda part: part.path)


def _open(folder: Path, table: Table) -> DeltaTable | None:
    home = folder / table.name
    try:
        found = open_table(home)
    except StoreError as error:
        raise _damaged(home, error.got) from error
    if found is None and any(home.glob("*.parquet")):
        raise _damaged(home, "data files, and no log of what they are")
    return found


def _damaged(home: Path, got: str) -> StoreError:
    folder = home if home.name == LEDGER else home.parent
    return StoreError(
        f"ledger {home}",
        expected="a Delta table with all its files",
        got=got,
        do=f"put it back from a backup, or move {folder} away: the next prediction begins a new ledger",
    )


def _last(part: Part) -> datetime | None:
    text = json.loads(part.stats).get("maxValues", {}).get("bar_ts")
    return None if text is None else datetime.fromisoformat(text)


def _text(stamp: datetime) -> str:
    return f"{stamp:%Y-%m-%dT%H:%M:%S.000Z}"
