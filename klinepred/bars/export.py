"""In: symbols, a span, a version. Out: their bars in one file, or in one file a symbol; ingest reads them back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final, Literal

import polars as pl
from polars.io.plugins import register_io_source

from klinepred.bars.groups import groups
from klinepred.bars.store import need_store, need_symbols, scan_rows, store_version, stored_clocks
from klinepred.bars.tables import reason
from klinepred.calendar import Clock
from klinepred.errors import StoreError, UsageError
from klinepred.headway import Work
from klinepred.paths import Workspace, file_name, open_atomic
from klinepred.schema import BAR_SCHEMA
from klinepred.spreadsheet import guarded

Form = Literal["csv", "parquet", "arrow"]
GROUP_ROWS: Final = 500_000
"""Bars in memory at once, unless a single symbol has more."""
NAME_CHARS: Final = 150


@dataclass(frozen=True)
class Exported:
    """What an export wrote.

    Attributes
    ----------
    version
        Version of the store it read.
    clocks
        The symbols by their clock: `klinepred ingest` takes in one clock at a time.
    """

    version: int
    files: tuple[Path, ...]
    bars: int
    clocks: Mapping[Clock, tuple[str, ...]]


def export_bars(
    space: Workspace,
    output: Path,
    *,
    form: Form,
    symbols: Sequence[str] | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    as_of: int | datetime | None = None,
    per_symbol: bool = False,
) -> Exported:
    """Write bars out, sorted by symbol and time, a group of symbols at a time; each file appears whole or not at all.

    Parameters
    ----------
    output
        A file; with `per_symbol` a folder that is new or empty. The names in it are those of the symbols, escaped so
        that no two fall together on any file system and none leaves the folder.
    symbols, start, end, as_of
        As `klinepred.bars.store.scan_bars`.

    Raises
    ------
    StoreError
        Nothing is stored, the version or a symbol is not there, no bar lies in the span, or `output` cannot be written.
    UsageError
        `output` is a folder where a file is needed, or the other way round, or a folder with something in it.
    """
    need_store(space)
    _fits(output, per_symbol=per_symbol)
    number = store_version(space, as_of=as_of)
    version = 0 if number is None else number
    rows = scan_rows(space, start=start, end=end, as_of=version)
    if symbols is not None:
        need_symbols(space, list(symbols), as_of=version)
        rows = rows.filter(pl.col("symbol").is_in(list(symbols)))
    sizes = rows.group_by("symbol").len().sort("symbol").collect()
    if sizes.is_empty():
        raise StoreError(
            f"export of {space.store}",
            expected="at least one bar of these symbols in this span",
            got="none",
            do="see klinepred bars list for what is stored",
        )

    def read(group: Sequence[str]) -> pl.DataFrame:
        work.step(len(group))
        return rows.filter(pl.col("symbol").is_in(group)).select(BAR_SCHEMA.keys()).sort("symbol", "ts").collect()

    if per_symbol:
        paths = {output / f"{_name(symbol)}.{form}": [symbol] for symbol in sizes["symbol"]}
    else:
        paths = {output: sizes["symbol"].to_list()}
    with Work("symbols written", total=sizes.height) as work:
        for path, names in paths.items():
            _write(path, form, map(read, groups(sizes.filter(pl.col("symbol").is_in(names)), most=GROUP_ROWS)))
    clocks: dict[Clock, list[str]] = {}
    stored = stored_clocks(space, as_of=version)
    for symbol in sizes["symbol"]:
        clocks.setdefault(stored[symbol], []).append(symbol)
    return Exported(
        version, tuple(paths), int(sizes["len"].sum()), {clock: tuple(group) for clock, group in clocks.items()}
    )


def _write(path: Path, form: Form, frames: Iterator[pl.DataFrame]) -> None:
    try:
        with open_atomic(path) as out:
            if form == "csv":
                _write_csv(out, frames)
                return
            rows = register_io_source(lambda *_: frames, schema=BAR_SCHEMA)
            if form == "parquet":
                rows.sink_parquet(out, engine="streaming")
            else:
                rows.sink_ipc(out, engine="streaming", compression="zstd")
    except (OSError, pl.exceptions.PolarsError) as error:
        raise StoreError(
            f"export to {path}",
            expected="a file that can be written",
            got=reason(error),
            do="free the disk or mend the permissions or limits, or name another place with -o",
        ) from error


def _write_csv(out: BinaryIO, frames: Iterator[pl.DataFrame]) -> None:
    for number, frame in enumerate(frames):
        stamps = pl.col("ts").dt.strftime("%Y-%m-%dT%H:%M:%SZ")
        guarded(frame.with_columns(stamps)).write_csv(out, include_header=number == 0)


def _name(symbol: str) -> str:
    """`file_name`, cut where it would be too long for a file system; its hash then keeps it apart from others."""
    name = file_name(symbol)
    if len(name) <= NAME_CHARS:
        return name
    return f"{name[:NAME_CHARS]}~{hashlib.sha256(symbol.encode(errors='surrogatepass')).hexdigest()[:16]}"


def _fits(output: Path, *, per_symbol: bool) -> None:
    if not per_symbol and output.is_dir():
        raise UsageError(
            f"-o {output}", expected="a file", got="a folder", do="name a file, or add --per-symbol for a file a symbol"
        )
    if per_symbol and output.exists() and not output.is_dir():
        raise UsageError(f"-o {output}", expected="a folder", got="a file", do="name a new or empty folder")
    if per_symbol and output.is_dir() and any(output.iterdir()):
        raise UsageError(
            f"-o {output}",
            expected="a folder that is new or empty, so that nothing older is taken for part of the export",
            got="one with something in it",
            do="name another folder, or empty this one",
        )
