"""In: frames to keep. Out: the three Delta tables of a workspace (bars, symbols, quarantine), one commit per write."""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import polars as pl
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from klinepred.errors import StoreError
from klinepred.schema import BAR_SCHEMA

MONTH: Final = "month"
BARS: Final = "bars"
SYMBOLS: Final = "symbols"
QUARANTINE: Final = "quarantine"
LEAST_BYTES: Final = 8
"""A stored row takes more than this on disk; less room than that need not be tried."""
SCHEMAS: Final[Mapping[str, dict[str, pl.DataType]]] = {
    BARS: {**BAR_SCHEMA, MONTH: pl.String()},
    SYMBOLS: {name: pl.String() for name in ("symbol", "calendar", "hours", "zone", "source")},
    QUARANTINE: {**BAR_SCHEMA, "reason": pl.String(), "source": pl.String()},
}


def open_table(folder: Path, version: int | datetime | None = None) -> DeltaTable | None:
    """The Delta table at `folder`, or None where there is none yet.

    Raises
    ------
    StoreError
        The table is damaged, or has no such version.
    """
    try:
        if not (folder / "_delta_log").is_dir():
            return None
        table = DeltaTable(_place(folder))
        if version is not None:
            table.load_as_version(version)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, ValueError) as error:
        wanted = "a Delta table" if version is None else f"version {version} of the table"
        raise StoreError(
            f"store {folder}", expected=wanted, got=_first_line(error), do="see klinepred bars list for what is there"
        ) from error
    return table


def scan_table(
    folder: Path,
    name: str,
    version: int | datetime | None = None,
    *,
    first: str | None = None,
    last: str | None = None,
) -> pl.LazyFrame:
    """Rows of the table `name` under `folder`, unsorted, without `month`; no rows where it does not exist.

    Files of months before `first` or after `last` (2025-06) are not opened. Errors as `open_table`.
    """
    columns = {column: dtype for column, dtype in SCHEMAS[name].items() if column != MONTH}
    table = open_table(folder / name, version)
    # Not pl.scan_delta: it takes percent-encoded paths for real ones (folders with blanks or umlauts), and looks for
    # partitions in every folder above that has a "=" in its name.
    depth = 2 if name == BARS else 1
    files = [] if table is None else [uri.rsplit("/", depth)[1:] for uri in table.file_uris()]
    if name == BARS:
        months = [parts[0].removeprefix(f"{MONTH}=") for parts in files]
        files = [
            parts
            for parts, month in zip(files, months, strict=True)
            if (first is None or month >= first) and (last is None or month <= last)
        ]
    if not files:
        return pl.LazyFrame(schema=columns)
    paths = sorted(folder.joinpath(name, *parts) for parts in files)
    return pl.scan_parquet(paths, hive_partitioning=False, glob=False).select(*columns)


def append(folder: Path, name: str, rows: pl.DataFrame, *, note: Mapping[str, str]) -> None:
    """Add `rows` in one commit; makes the table with the first."""
    with _writing(folder, name, rows.height):
        write_deltalake(
            _place(folder / name),
            rows.select(SCHEMAS[name].keys()),
            mode="append",
            partition_by=[MONTH] if name == BARS else None,
            commit_properties=CommitProperties(custom_metadata=dict(note)),
        )


def overwrite(
    folder: Path, name: str, rows: pl.DataFrame, *, note: Mapping[str, str], predicate: str | None = None
) -> None:
    """Put `rows` in the place of those that `predicate` (SQL; None = all) holds for, in one commit."""
    with _writing(folder, name, rows.height):
        write_deltalake(
            _place(folder / name),
            rows.select(SCHEMAS[name].keys()),
            mode="overwrite",
            predicate=predicate,
            commit_properties=CommitProperties(custom_metadata=dict(note)),
        )


def _place(folder: Path) -> Path:
    """`folder`, if deltalake can open it: it takes paths for addresses, and decodes or rejects some signs in them."""
    hard = re.search(r"%[0-9A-Fa-f]{2}|[\[\]]", str(folder))
    if hard:
        raise StoreError(
            f"store {folder}",
            expected="a path without brackets and without a percent sign before two hexadecimal digits",
            got=f"{hard.group()!r} in it, which the table library cannot open",
            do="use a workspace in a folder of another name (-w)",
        )
    return folder


@contextmanager
def _writing(folder: Path, name: str, rows: int) -> Iterator[None]:
    """One write by the holder of the lock: a failure becomes a StoreError and leaves no file of its own behind."""
    began = time.time()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _need_room(folder, rows)
        yield
    except (DeltaError, OSError) as error:
        _sweep(folder / name, began)
        raise StoreError(
            f"store {folder}",
            expected="to write one commit",
            got=_first_line(error),
            do="free the disk or the permissions and run the same command again; stored bars are as they were",
        ) from error


def _need_room(folder: Path, rows: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < rows * LEAST_BYTES:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {free / 1e6:,.1f} MB free for {rows:,} rows")


def _sweep(folder: Path, began: float) -> None:
    """Remove data files written since `began` (seconds since 1970) that no commit names."""
    table = open_table(folder)
    named = set() if table is None else {Path(uri).name for uri in table.file_uris()}
    for file in folder.rglob("*.parquet"):
        if file.name not in named and file.stat().st_mtime >= began:
            file.unlink(missing_ok=True)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
