"""In: paths of files, folders, patterns. Out: one `Delivery` per plain file, packed ones being unpacked."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import polars as pl
from polars.exceptions import PanicException, PolarsError

from klinepred.bars.delivery import Delivery, Failure
from klinepred.bars.sources.archive import Box, opened
from klinepred.bars.sources.columns import Layout, find_layout
from klinepred.bars.sources.delimited import Rows, read_delimited
from klinepred.bars.sources.filenames import symbol_of_file
from klinepred.bars.sources.kinds import PACKED, PLAIN, is_hidden, packing_of, read_head
from klinepred.bars.sources.member import Member
from klinepred.bars.sources.room import Room
from klinepred.bars.sources.spacing import look_otherwise, to_five_minutes
from klinepred.bars.sources.stamps import read_stamps
from klinepred.calendar import Clock
from klinepred.errors import SourceError, UsageError
from klinepred.schema import BAR_SCHEMA


def read_files(
    paths: Sequence[Path],
    *,
    clock: Clock,
    tz: str | None,
    stamp: Literal["open", "close"],
    symbols: tuple[str, ...],
    vendor: str = "auto",
) -> Iterator[Delivery]:
    """Read bars from files, one delivery each; of an archive, one for each file of bars in it.

    Parameters
    ----------
    paths
        Files; folders (all files of known kinds below them); patterns such as `bars/*.csv`.
    clock
        Says the zone of stamps without one (unless `tz` does) and where sessions begin (to add minutes up).
    tz
        IANA zone of stamps without one.
    stamp
        Whether stamps are the opens or the ends of their rows.
    symbols
        Take only these where a file has a symbol column; one alone names the symbol of files without such a column.
    vendor
        "auto"; the form of a file is found from the file itself.

    Raises
    ------
    UsageError
        A path does not exist, or `vendor` is not known.
    SourceError
        The only file cannot be read; of several, those that cannot are failures of their delivery.
    """
    if vendor != "auto":
        raise UsageError(
            f"--vendor {vendor}",
            expected="auto: the form of a file is recognised from its columns",
            got=repr(vendor),
            do="leave --vendor away; --tz, --stamp and --symbols say what a file does not",
        )
    files = find_files(paths)
    return _read_all(files, clock=clock, tz=tz, stamp=stamp, symbols=symbols)


def find_files(paths: Sequence[Path]) -> list[Path]:
    """The files that `paths` name, each once, sorted within a folder or pattern; UsageError where one is none."""
    found: list[Path] = []
    for path in paths:
        spot = path.expanduser()
        if spot.is_dir():
            below = sorted(
                file
                for file in spot.rglob("*")
                if file.suffix.lower() in (*PLAIN, *PACKED)
                and not is_hidden(str(file.relative_to(spot)))
                and file.is_file()
            )
            if not below:
                raise UsageError(
                    f"{path}",
                    expected=f"files ending in {', '.join((*PLAIN, *PACKED))} in this folder",
                    got="none",
                    do="pass the folder the files are in, or the files themselves",
                )
            found.extend(below)
        elif spot.is_file():
            found.append(spot)
        else:
            hits = [Path(hit) for hit in sorted(glob.glob(str(spot), recursive=True)) if Path(hit).is_file()]
            if not hits:
                raise UsageError(
                    f"{path}", expected="a file, a folder or a pattern", got="no such file", do="check the path"
                )
            found.extend(hits)
    return list(dict.fromkeys(found))


def are_many(files: Sequence[Path]) -> bool:
    """Whether the bars of one symbol may come in several deliveries: several files, or a zip of several."""
    return len(files) > 1 or (len(files) == 1 and packing_of(read_head(files[0])) == "zip")


def _read_all(
    files: Sequence[Path], *, clock: Clock, tz: str | None, stamp: str, symbols: tuple[str, ...]
) -> Iterator[Delivery]:
    for file in files:
        try:
            with opened(file) as box:
                alone = len(files) == 1 and len(box.members) + len(box.refused) == 1
                for member, error in box.refused:
                    if alone:
                        raise error
                    yield _failed(member, error)
                for number, member in enumerate(box.members):
                    try:
                        with Room() as room:
                            rows = _read_rows(box.unpack(member, room), member, room)
                        delivery = _read_one(
                            rows, box, member, clock=clock, tz=tz or rows.zone, ends=stamp == "close", symbols=symbols
                        )
                        delivery = _with_rejects(delivery, rows)
                    except SourceError as error:
                        if alone:
                            raise
                        delivery = _failed(member, error)
                    yield delivery if number else replace(delivery, remarks=(*box.remarks, *delivery.remarks))
                    del delivery
        except SourceError as error:  # the file as a whole
            if len(files) == 1:
                raise
            yield _failed(Member(file), error)


def _failed(member: Member, error: SourceError) -> Delivery:
    text = f"{error.summary}: expected {error.expected}; got {error.got}; {error.do}"
    return Delivery(pl.DataFrame(schema=BAR_SCHEMA), str(member.where), {member.label: Failure("failed", text)})


def _with_rejects(delivery: Delivery, rows: Rows) -> Delivery:
    """`delivery` with the lines that could not be read as rows; of a file of one symbol they are that symbol's."""
    bad, frame = rows.rejects, delivery.frame
    if bad is None or bad.is_empty():
        return delivery
    if rows.layout.symbol is None and frame.height:
        bad = bad.with_columns(symbol=pl.lit(frame.get_column("symbol")[0], pl.String))
    return replace(delivery, rejects=bad if delivery.rejects is None else pl.concat([delivery.rejects, bad]))


def _read_one(
    rows: Rows, box: Box, member: Member, *, clock: Clock, tz: str | None, ends: bool, symbols: tuple[str, ...]
) -> Delivery:
    frame, layout, remarks = rows.frame, rows.layout, list(rows.remarks)
    symbol, line = _symbol(frame, layout, member, symbols)
    remarks += line
    stamps = read_stamps(
        frame.get_column(layout.stamp),
        time=None if layout.time is None else frame.get_column(layout.time),
        symbol=None if layout.symbol is None else symbol,
        tz=tz,
        zone=clock.zone,
        where=member.where,
    )
    remarks += stamps.remarks
    volume, line = _volume(frame, layout, member)
    remarks += line
    bars = pl.DataFrame(
        [
            symbol.alias("symbol"),
            stamps.ts.alias("ts"),
            *(frame.get_column(getattr(layout, name)).alias(name) for name in ("open", "high", "low", "close")),
            volume,
        ]
    )
    failures: dict[str, Failure] = {}
    if layout.symbol is not None and symbols:
        bars = bars.filter(pl.col("symbol").is_in(list(symbols)))
        absent = set(symbols) - set(bars.get_column("symbol").unique())
        failures = {name: Failure("unknown-symbol", f"no row of {member.label} is of {name}") for name in absent}
    doubt = look_otherwise(bars, clock=clock, ends=ends)
    remarks += [f"{member.label}: {doubt}"] if doubt else []
    spaced = to_five_minutes(bars, clock=clock, ends=ends)
    return Delivery(
        frame=spaced.frame,
        source=f"file {member.label} sha256:{box.sha256}",
        failures={**failures, **spaced.failures},
        remarks=(*remarks, *(f"{member.label}: {line}" for line in spaced.remarks)),
        rejects=spaced.rejects,
    )


def _read_rows(data: Path, member: Member, room: Room) -> Rows:
    """The rows of the plain file at `data`, which messages call by the names of `member`."""
    head, ending = read_head(data), member.named.suffix.lower()
    if head.startswith(b"PAR1") or ending in (".parquet", ".pq"):
        return _read_binary(data, member, "Parquet")
    if head.startswith(b"ARROW1") or ending in (".feather", ".arrow", ".ipc"):
        return _read_binary(data, member, "Arrow")
    return read_delimited(data, member, room)


def _read_binary(data: Path, member: Member, kind: Literal["Parquet", "Arrow"]) -> Rows:
    try:
        scan = pl.scan_parquet(data, glob=False, hive_partitioning=False) if kind == "Parquet" else pl.scan_ipc(data)
        schema = scan.collect_schema()
        sample = scan.head(50).collect()
        texts = {name: [str(value) for value in sample.get_column(name)] for name in schema.names()}
        layout = find_layout(schema.names(), where=member.where, sample=texts)
        frame = scan.select(layout.used).collect()
    except (PolarsError, PanicException, OSError) as error:
        raise SourceError(
            member.where,
            expected=f"a whole {kind} file",
            got=str(error).splitlines()[0][:200],
            do="download or export it again: it is damaged or not of this kind",
        ) from error
    try:
        return Rows(frame.with_columns(pl.col(name).cast(pl.Float64) for name in layout.numbers), layout, ())
    except PolarsError as error:
        raise SourceError(
            member.where,
            expected=f"numbers in {', '.join(layout.numbers)}",
            got=str(error).splitlines()[0][:200],
            do="store prices and volume as numbers",
        ) from error


def _symbol(
    frame: pl.DataFrame, layout: Layout, member: Member, symbols: tuple[str, ...]
) -> tuple[pl.Series, list[str]]:
    """The symbol of each row, as text, and where it was taken from if not from a column."""
    if layout.symbol is not None:
        return frame.get_column(layout.symbol).cast(pl.String).str.strip_chars(), []
    if len(symbols) == 1:
        name, line = symbols[0], []
    else:
        name = symbol_of_file(member.named)
        line = [f"{member.label}: symbol {name} taken from the file name (--symbols says another)"]
        if symbols and name not in symbols:
            raise SourceError(
                f"{member.where}: no symbol column",
                expected=f"a file of one of {', '.join(symbols[:10])}",
                got=f"{name}, by its name",
                do="pass one file with one --symbols",
            )
    return pl.repeat(name, frame.height, dtype=pl.String, eager=True), line


def _volume(frame: pl.DataFrame, layout: Layout, member: Member) -> tuple[pl.Series, list[str]]:
    """The first volume that is not 0 throughout; which one is said where there is a choice."""
    for spot, name in enumerate(layout.volumes):
        column = frame.get_column(name)
        if bool((column.fill_null(0.0) != 0.0).any()):
            skipped = layout.volumes[:spot]
            line = [f"{member.label}: {', '.join(skipped)} is 0 throughout, {name} taken as volume"] if skipped else []
            return column.alias("volume"), line
    return frame.get_column(layout.volumes[0]).alias("volume"), []
