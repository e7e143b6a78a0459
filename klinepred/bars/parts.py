"""In: rows of a table. Out: its Parquet data files, written whole or not at all; which files a version is made of."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, cast
from urllib.parse import unquote

import polars as pl
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from klinepred.objects import ObjectPath, Place, options_for

MONTH: Final = "month"
GROUP_ROWS: Final = 131_072
"""Rows of a row group: what a reader of few symbols skips or reads at once."""
FEW: Final = 8
"""So many objects are looked up one by one; more are listed together."""
P = TypeVar("P", bound=Place)
AT_ONCE: Final = 4
"""Files written at the same time."""


@dataclass(frozen=True)
class Part:
    """One data file of a table.

    Attributes
    ----------
    path
        As the log has it, relative to the table's folder.
    month
        Of the bars in it, as 2026-01; None in a table that is not partitioned.
    size, rows
        Bytes and rows.
    stats
        JSON of Delta: number of rows, smallest and largest values.
    """

    path: str
    month: str | None
    size: int
    rows: int
    stats: str

    def locate(self, folder: P) -> P:
        """Where it lies, if the table is at `folder`."""
        return cast(P, folder / unquote(self.path))

    def add(self, *, changes: bool) -> AddAction:
        """The action that puts it in; `changes`: whether rows of the table change by it."""
        return AddAction(self.path, self.size, self._values(), int(time.time() * 1000), changes, self.stats)

    def remove(self, *, changes: bool) -> RemoveAction:
        """The action that takes it out."""
        return RemoveAction(self.path, changes, int(time.time() * 1000), self.size, self._values())

    def _values(self) -> dict[str, str | None]:
        return {} if self.month is None else {MONTH: self.month}


def list_parts(table: DeltaTable) -> list[Part]:
    """The data files of the version that `table` is loaded at, sorted by path."""
    actions = pl.DataFrame(table.get_add_actions(flatten=True))
    if actions.is_empty():
        return []
    names = {f"{edge}.{column}" for edge in ("min", "max") for column in ("symbol", "ts")}
    month = f"partition.{MONTH}"
    parts = []
    for row in actions.sort("path").iter_rows(named=True):
        edges = {name: row[name] for name in names if row.get(name) is not None}
        parts.append(
            Part(
                path=row["path"],
                month=row.get(month),
                size=row["size_bytes"],
                rows=row["num_records"] or 0,
                stats=_stats(row["num_records"] or 0, edges),
            )
        )
    return parts


def sizes_of(parts: Sequence[Part], folder: Place) -> dict[str, int]:
    """Bytes of those data files of the table at `folder` that are there, by path."""
    known = folder.sizes() if isinstance(folder, ObjectPath) and len(parts) > FEW else None
    found = {}
    for part in parts:
        size = _size(part.locate(folder)) if known is None else known.get(unquote(part.path))
        if size is not None:
            found[part.path] = size
    return found


def _size(path: Place) -> int | None:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_parts(folder: Place, rows: pl.DataFrame) -> Iterator[Part]:
    """Write `rows` as data files below `folder`, one a month if they have a `month`; each is on the disk when yielded.

    A file waits for the disk while another is packed.

    Polars writes, not delta-rs: on a full disk the latter prints the panics of its threads beside the error.

    Raises
    ------
    OSError, polars.exceptions.PolarsError
        A file could not be written; what there was of it is gone again.
    """
    if MONTH not in rows.columns:
        yield _write(folder, rows, None)
        return
    with ThreadPoolExecutor(AT_ONCE, "parts") as pool:
        jobs = [pool.submit(_write, folder, part, month) for month, part in _by_month(rows)]
        given = 0
        try:
            for job in jobs:
                part = job.result()
                given += 1
                yield part
        except BaseException:
            for job in jobs[given:]:
                if not job.cancel() and job.exception() is None:
                    (folder / job.result().path).unlink(missing_ok=True)
            raise


def _by_month(rows: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows of each month in their order, without `month`; a month of a symbol lies in one stretch."""
    runs = rows.get_column(MONTH).rle().struct.unnest()
    stretches: dict[str, list[pl.DataFrame]] = {}
    start, bare = 0, rows.drop(MONTH)
    for month, size in runs.select("value", "len").iter_rows():
        stretches.setdefault(month, []).append(bare.slice(start, size))
        start += size
    for month in list(stretches):
        yield month, pl.concat(stretches.pop(month))


def _write(folder: Place, rows: pl.DataFrame, month: str | None) -> Part:
    name = f"part-{secrets.token_hex(16)}.parquet"
    name = name if month is None else f"{MONTH}={month}/{name}"
    path = folder / name
    size = _to_disk(rows.rechunk(), path) if isinstance(path, Path) else _to_objects(rows.rechunk(), path)
    edges = {}
    if month is not None:
        low = rows.select(pl.col("symbol", "ts").min()).row(0, named=True)
        high = rows.select(pl.col("symbol", "ts").max()).row(0, named=True)
        edges = {f"{edge}.{key}": value for edge, row in (("min", low), ("max", high)) for key, value in row.items()}
    return Part(name, month, size, rows.height, _stats(rows.height, edges))


def _to_disk(rows: pl.DataFrame, path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("xb") as out:
            rows.write_parquet(out, row_group_size=GROUP_ROWS, compression="lz4")
            out.flush()
            os.fsync(out.fileno())
            return os.fstat(out.fileno()).st_size
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _to_objects(rows: pl.DataFrame, path: ObjectPath) -> int:
    """An object is there when all of it is; the provider of credentials is the library's own: the environment."""
    rows.write_parquet(
        str(path),
        row_group_size=GROUP_ROWS,
        compression="lz4",
        storage_options=options_for(path),
        credential_provider=None,
    )
    return path.stat().st_size


def _stats(rows: int, edges: dict[str, object]) -> str:
    out: dict[str, object] = {"numRecords": rows}
    for edge in ("min", "max"):
        values = {key: _text(edges[f"{edge}.{key}"]) for key in ("symbol", "ts") if f"{edge}.{key}" in edges}
        if values:
            out[f"{edge}Values"] = values
    return json.dumps(out)


def _text(value: object) -> str:
    return f"{value:%Y-%m-%dT%H:%M:%S.000Z}" if hasattr(value, "strftime") else str(value)
