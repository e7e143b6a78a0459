"""In: paths of files, folders, patterns. Out: one `Delivery` per plain file, packed ones being unpacked."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import polars as pl

from klinepred.bars.delivery import Delivery, Failure
from klinepred.bars.sources.archive import opened
from klinepred.bars.sources.binary import STREAM, read_binary
from klinepred.bars.sources.delimited import Rows, read_delimited
from klinepred.bars.sources.json_rows import read_json
from klinepred.bars.sources.json_text import is_json
from klinepred.bars.sources.kinds import PACKED, PLAIN, is_hidden, packing_of, read_head
from klinepred.bars.sources.meaning import Asked, to_delivery
from klinepred.bars.sources.member import Member
from klinepred.bars.sources.room import Room
from klinepred.bars.sources.vendors import check_vendor
from klinepred.calendar import Clock
from klinepred.errors import SourceError, UsageError
from klinepred.schema import BAR_SCHEMA


@dataclass(frozen=True)
class Unread:
    """A file that is still to be read.

    Attributes
    ----------
    asked
        How.
    alone
        It is the only one: what is wrong with it is raised, not delivered.
    """

    file: Path
    asked: Asked
    alone: bool


def find_unread(
    paths: Sequence[Path],
    *,
    clock: Clock,
    tz: str | None,
    stamp: Literal["open", "close"] | None,
    symbols: tuple[str, ...],
    vendor: str = "auto",
) -> list[Unread]:
    """The files to read bars from.

    Parameters
    ----------
    paths
        Files; folders (all files of known kinds below them); patterns such as `bars/*.csv`.
    clock
        Says the zone of stamps without one (unless `tz` or the vendor does) and where sessions begin (to add minutes
        up).
    tz
        IANA zone of stamps without one; None: the vendor's, else the calendar's.
    stamp
        Whether stamps are the opens or the ends of their rows; None: as the vendor writes them, else opens.
    symbols
        Take only these. One alone names the symbol of a file without a column for it, and of several such files those
        whose names do not say another.
    vendor
        Whose conventions the files follow; "auto": recognised from each file, none where nothing tells.

    Raises
    ------
    UsageError
        A path does not exist, or `vendor` is not known.
    """
    check_vendor(vendor)
    files = find_files(paths)
    asked = Asked(clock, tz, stamp, symbols, vendor)
    return [Unread(file, asked, len(files) == 1) for file in files]


def read_files(
    paths: Sequence[Path],
    *,
    clock: Clock,
    tz: str | None,
    stamp: Literal["open", "close"] | None,
    symbols: tuple[str, ...],
    vendor: str = "auto",
) -> Iterator[Delivery]:
    """Read bars from files, one delivery each; of an archive, one for each file of bars in it.

    Parameters and UsageError as for `find_unread`, at once; SourceError as for `read_file`, in turn.
    """
    found = find_unread(paths, clock=clock, tz=tz, stamp=stamp, symbols=symbols, vendor=vendor)
    return (delivery for one in found for delivery in read_file(one))


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


def read_file(one: Unread) -> Iterator[Delivery]:
    """Read bars from a file; of an archive, one delivery for each file of bars in it.

    Raises
    ------
    SourceError
        The only file cannot be read; of several, those that cannot are failures of their delivery.
    """
    file, asked = one.file, one.asked
    try:
        with opened(file) as box:
            alone = one.alone and len(box.members) + len(box.refused) == 1
            for member, error in box.refused:
                if alone:
                    raise error
                yield _failed(member, error)
            for number, member in enumerate(box.members):
                try:
                    with Room() as room:
                        rows = _read_rows(box.unpack(member, room), member, room)
                    rows = replace(rows, form=f"{rows.form}, {box.kind}") if box.kind else rows
                    delivery = _with_rejects(to_delivery(rows, member, asked, digest=box.sha256, alone=alone), rows)
                except SourceError as error:
                    if alone:
                        raise
                    delivery = _failed(member, error)
                yield delivery if number else replace(delivery, remarks=(*box.remarks, *delivery.remarks))
                del delivery
    except SourceError as error:  # the file as a whole
        if one.alone:
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


def _read_rows(data: Path, member: Member, room: Room) -> Rows:
    """The rows of the plain file at `data`, which messages call by the names of `member`."""
    head, ending = read_head(data), member.named.suffix.lower()
    if head.startswith(b"PAR1") or ending in (".parquet", ".pq"):
        return read_binary(data, member, "Parquet", head=head)
    if head.startswith((b"ARROW1", STREAM)) or ending in (".feather", ".arrow", ".ipc"):
        return read_binary(data, member, "Arrow", head=head)
    if is_json(head, ending):
        return read_json(data, member, room)
    return read_delimited(data, member, room)
