"""In: frames to keep. Out: the three Delta tables of a workspace (bars, symbols, quarantine), one commit per write."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import polars as pl
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from klinepred.bars.commits import LOG, find_version, list_versions, open_delta
from klinepred.bars.form import refuse_other
from klinepred.bars.parts import MONTH, Part, list_parts, sizes_of, write_parts
from klinepred.bars.transaction import commit
from klinepred.bars.turn import OutrunError
from klinepred.errors import StoreError
from klinepred.objects import Place, options_for, said
from klinepred.schema import BAR_SCHEMA

BARS: Final = "bars"
SYMBOLS: Final = "symbols"
QUARANTINE: Final = "quarantine"
BOUND: Final = "klinepred.symbols"
"""Key in a commit of `bars`: the version of `symbols` that has the clocks of its bars."""
LEAST_BYTES: Final = 4
"""A stored row takes about this on disk at the least; less room than that need not be tried."""
SCHEMAS: Final[Mapping[str, dict[str, pl.DataType]]] = {
    BARS: {**BAR_SCHEMA, MONTH: pl.String()},
    SYMBOLS: {name: pl.String() for name in ("symbol", "calendar", "hours", "zone", "source")},
    QUARANTINE: {**BAR_SCHEMA, "reason": pl.String(), "source": pl.String()},
}
_DELTA: Final = {pl.String: "string", pl.Float64: "double", pl.Datetime: "timestamp"}


def open_table(folder: Place, version: int | datetime | None = None) -> DeltaTable | None:
    """The Delta table at `folder`, or None where there is none yet.

    Parameters
    ----------
    version
        None = the latest; a moment (aware) = the latest made by then, by the times in the log.

    Raises
    ------
    StoreError
        The table is damaged, or has no such version.
    """
    try:
        if not (folder / LOG).is_dir():
            return None
        if version is None:
            return open_delta(_place(folder))
        return open_delta(_place(folder), find_version(folder, version)) if list_versions(folder) else None
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, ValueError) as error:
        wanted = "a Delta table" if version is None else f"version {version} of the table"
        raise StoreError(
            f"store {folder}", expected=wanted, got=reason(error), do="see klinepred bars history for what is there"
        ) from error


def scan_table(
    folder: Place,
    name: str,
    version: int | datetime | None = None,
    *,
    first: str | None = None,
    last: str | None = None,
) -> pl.LazyFrame:
    """Rows of the table `name` under `folder`, unsorted, without `month`; no rows where it does not exist.

    Files of months before `first` or after `last` (2025-06) are not opened. Errors as `open_table`; also where a data
    file of this version is gone.
    """
    number, parts = read_parts(folder, name, version)
    if name == BARS:
        low, high = first or "", last or "9999"
        parts = [part for part in parts if low <= str(part.month) <= high]
    need_parts(folder / name, parts, version=number)
    return scan_parts(folder / name, name, parts)


def read_parts(folder: Place, name: str, version: int | datetime | None = None) -> tuple[int, list[Part]]:
    """The number of a version of the table `name` (-1 = there is no table) and its data files; see `open_table`."""
    table = open_table(folder / name, version)
    if table is None:
        return -1, []
    refuse_other(table, folder / name, SCHEMAS[name])
    return table.version(), list_parts(table)


def scan_parts(folder: Place, name: str, parts: Sequence[Part]) -> pl.LazyFrame:
    """Rows of some data files of the table `name` at `folder`, file by file, without `month`."""
    columns = {column: dtype for column, dtype in SCHEMAS[name].items() if column != MONTH}
    if not parts:
        return pl.LazyFrame(schema=columns)
    # Not pl.scan_delta: it takes percent-encoded paths for real ones (folders with blanks or umlauts), and looks for
    # partitions in every folder above that has a "=" in its name.
    if isinstance(folder, Path):
        paths = [part.locate(folder) for part in parts]
        return pl.scan_parquet(paths, hive_partitioning=False, glob=False).select(*columns)
    names, options = [str(part.locate(folder)) for part in parts], options_for(folder)
    return pl.scan_parquet(
        names, hive_partitioning=False, glob=False, storage_options=options, credential_provider=None
    ).select(*columns)


def need_parts(folder: Place, parts: Sequence[Part], *, version: int) -> None:
    """Make sure that the data files of `version` are there.

    Raises
    ------
    StoreError
        Some are not, or not as they were written: the version was vacuumed, or the store is damaged.
    """
    sizes = sizes_of(parts, folder)
    gone = [part.path for part in parts if part.path not in sizes]
    if not gone:
        _refuse_cut(parts, folder, sizes)
        return
    latest = version == list_versions(folder)[-1]
    raise StoreError(
        f"version {version} of {folder}",
        expected=f"its {len(parts)} data files" if len(parts) > 1 else "its data file",
        got=f"{len(gone)} gone, such as {gone[0]}" + ("" if latest else "; klinepred bars vacuum removes them"),
        do="put the file back from a backup, or go back with klinepred bars restore to a version that can be read"
        if latest
        else "choose a version that klinepred bars history shows as readable",
    )


def refuse_cut(parts: Sequence[Part], folder: Place) -> None:
    """Make sure that data files are as long as when they were written.

    Raises
    ------
    StoreError
        One is not.
    """
    _refuse_cut(parts, folder, {part.path: part.locate(folder).stat().st_size for part in parts})


def _refuse_cut(parts: Sequence[Part], folder: Place, sizes: Mapping[str, int]) -> None:
    for part in parts:
        size = sizes[part.path]
        if size != part.size:
            raise StoreError(
                f"data file {part.locate(folder)}",
                expected=f"{part.size:,} bytes, as it was written",
                got=f"{size:,}",
                do="put the file back from a backup, or go back with klinepred bars restore to a version without it",
            )


def append(folder: Place, name: str, rows: pl.DataFrame, *, note: Mapping[str, str]) -> None:
    """Add `rows` in one commit; makes the table with the first."""
    change(folder, name, rows, note=note)


def overwrite(
    folder: Place,
    name: str,
    rows: pl.DataFrame,
    *,
    note: Mapping[str, str],
    where: pl.Expr | None = None,
    months: tuple[str, str] = ("", "~"),
) -> None:
    """Put `rows` in the place of those that `where` (None = all) holds for, in one commit.

    Parameters
    ----------
    months
        First and last month that such rows are in; other files are not opened.
    """
    number, parts = read_parts(folder, name)
    if where is None:
        change(folder, name, rows, note=note, remove=parts)
        return
    parts = [part for part in parts if months[0] <= str(part.month) <= months[1]]
    need_parts(folder / name, parts, version=number)
    touched = []
    with writing(folder, name, rows.height) as made:
        if rows.height:
            made.extend(write_parts(folder / name, rows.select(SCHEMAS[name].keys())))
        for part in parts:  # one at a time: all of them may be more than fits into memory
            here = scan_parts(folder / name, name, [part])
            if not here.filter(where).select(pl.len()).collect().item():
                continue
            touched.append(part)
            rest = here.filter(~where).collect()
            if rest.height:
                rest = rest.with_columns(pl.lit(part.month).alias(MONTH)).select(SCHEMAS[name].keys())
                made.extend(write_parts(folder / name, rest))
        put(folder, name, add=made, remove=touched, note=note)


def change(
    folder: Place, name: str, rows: pl.DataFrame, *, note: Mapping[str, str], remove: Sequence[Part] = ()
) -> None:
    """Add `rows` and take the files `remove` out, in one commit.

    Raises
    ------
    StoreError
        It could not be written; the table is as it was, and nothing of it stays on the disk.
    """
    with writing(folder, name, rows.height) as made:
        if rows.height:
            made.extend(write_parts(folder / name, rows.select(SCHEMAS[name].keys())))
        put(folder, name, add=made, remove=remove, note=note)


def put(
    folder: Place,
    name: str,
    *,
    add: Sequence[Part] = (),
    remove: Sequence[Part] = (),
    note: Mapping[str, str],
    changes: bool = True,
) -> int:
    """One commit of files that are there already; inside `writing`. Returns the new version."""
    if name == BARS and BOUND not in note:
        versions = list_versions(folder / SYMBOLS)
        note = {**note, **({BOUND: str(versions[-1])} if versions else {})}
    kinds = {column: _DELTA[dtype.base_type()] for column, dtype in SCHEMAS[name].items()}
    return commit(_place(folder / name), schema=kinds, add=add, remove=remove, note=note, changes=changes)


@contextmanager
def writing(folder: Place, name: str, rows: int) -> Iterator[list[Part]]:
    """One write by the holder of the lock: a failure becomes a StoreError, and the files it has listed are removed."""
    made: list[Part] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before = list_versions(folder / name)
        _need_room(folder, rows)
        yield made
    except BaseException as error:
        # an error that came after the commit must not take its files
        if isinstance(error, OutrunError) or list_versions(folder / name) == before:
            for part in made:
                part.locate(folder / name).unlink(missing_ok=True)
            for place in folder.glob(f"{name}/{MONTH}=*") if isinstance(folder, Path) else ():
                with suppress(OSError):  # not empty
                    place.rmdir()
        if not isinstance(error, (DeltaError, OSError, pl.exceptions.PolarsError)):
            raise
        raise StoreError(
            f"store {folder}",
            expected="to write one commit",
            got=reason(error),
            do="free the disk or mend the permissions or limits, and run the same command again; "
            "stored bars are as they were",
        ) from error


def _place(folder: Place) -> Place:
    """`folder`, if deltalake can open it: it takes paths for addresses, and decodes or rejects some signs in them."""
    if not isinstance(folder, Path):  # addresses have been looked at
        return folder
    hard = re.search(r"%[0-9A-Fa-f]{2}|[\[\]]", str(folder))
    if hard:
        raise StoreError(
            f"store {folder}",
            expected="a path without brackets and without a percent sign before two hexadecimal digits",
            got=f"{hard.group()!r} in it, which the table library cannot open",
            do="use a workspace in a folder of another name (-w)",
        )
    return folder


def _need_room(folder: Place, rows: int) -> None:
    if not isinstance(folder, Path):
        return
    free = shutil.disk_usage(folder).free
    if free < rows * LEAST_BYTES:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {free / 1e6:,.1f} MB free for {rows:,} rows")


def reason(error: BaseException) -> str:
    """One line of what a library said: the words of the operating system where they are in it."""
    if "Generic S3 error" in str(error):
        return said(error)
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    system = re.search(r"[A-Z][^:\n↳]*\(os error \d+\)", text)
    return system.group().strip() if system else (text.splitlines() or [type(error).__name__])[0].strip()[:300]
