"""In: the list of members of a zip file. Out: which of them are bars, which are refused, which are passed over."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from klinepred.bars.sources.kinds import BUNDLES, PLAIN, is_hidden
from klinepred.bars.sources.member import Member, shown
from klinepred.errors import SourceError

MAX_MEMBERS: Final = 100_000
"""Files in one archive."""
MAX_LIST: Final = 64 << 20
"""Bytes of the list of members of a zip file, which is held in memory."""
PROSE: Final = ("readme", "license", "licence", "notice", "terms", "changelog", "copying", "disclaimer", "about")
"""How the names of texts begin that go along with data."""
UTF8_NAME: Final = 0x800
ENCRYPTED: Final = 0x1


def list_zip(
    file: Path, infos: Sequence[zipfile.ZipInfo]
) -> tuple[tuple[Member, ...], tuple[tuple[Member, SourceError], ...], tuple[str, ...]]:
    """Sort the members of a zip out, by name.

    Returns
    -------
    members, refused, remarks
        Files of bars; packed files inside it, each with its refusal; a line that names what was passed over.

    Raises
    ------
    SourceError
        Too many members, none of bars, or one under a password; an Excel workbook, which is a zip too.
    """
    if len(infos) > MAX_MEMBERS:
        raise SourceError(
            f"{file}",
            expected=f"at most {MAX_MEMBERS:,} files in an archive",
            got=f"{len(infos):,}",
            do="unpack it, and ingest the folder",
        )
    if any(info.filename == "[Content_Types].xml" for info in infos):
        raise SourceError(
            f"{file}",
            expected="a zip of CSV, JSON, Parquet, Arrow",
            got="an Excel workbook",
            do="save the sheet as CSV",
        )
    members: list[Member] = []
    refused: list[tuple[Member, SourceError]] = []
    other: list[str] = []
    for spot, info in sorted(enumerate(infos), key=lambda pair: pair[1].filename):
        member = Member(file, _name(info), spot)
        ending = member.named.suffix.lower()
        if info.filename.endswith("/") or is_hidden(member.inner):
            continue
        if ending in BUNDLES:
            refused.append((member, _nested(member)))
        elif ending not in PLAIN or (ending == ".txt" and _is_prose(member.named)):
            other.append(shown(member.inner))
        elif info.flag_bits & ENCRYPTED:
            raise SourceError(
                member.where,
                expected="an archive without a password",
                got="an encrypted one",
                do="unpack it with its password, then ingest what is in it",
            )
        else:
            members.append(member)
    few = ", ".join(other[:3]) + (f" and {len(other) - 3} more" if len(other) > 3 else "")
    if not members and not refused:
        raise SourceError(
            f"{file}",
            expected=f"files ending in {', '.join(PLAIN)} in the archive",
            got=f"only {few}" if other else "none",
            do="check the download",
        )
    return tuple(members), tuple(refused), (f"{file.name}: passed over, no files of bars: {few}",) if other else ()


def refuse_huge_list(file: Path) -> None:
    """Refuse a zip whose list of members alone would fill the memory, before it is read.

    Raises
    ------
    SourceError
        The list is longer than `MAX_LIST`.
    zipfile.BadZipFile
        The file has no end.
    """
    with file.open("rb") as data:
        size = data.seek(0, 2)
        data.seek(max(0, size - (1 << 16) - 42))
        tail = data.read()
        spot = tail.rfind(b"PK\x05\x06")
        if spot < 0 or len(tail) < spot + 22:
            raise zipfile.BadZipFile("its end is missing")
        length = struct.unpack_from("<L", tail, spot + 12)[0]
        if tail[max(0, spot - 20) : spot].startswith(b"PK\x06\x07"):  # a zip64 says its lengths in a further record
            data.seek(struct.unpack_from("<Q", tail, spot - 12)[0])
            record = data.read(56)
            length = struct.unpack_from("<Q", record, 40)[0] if len(record) == 56 else length
    if length > MAX_LIST:
        raise SourceError(
            f"{file}",
            expected=f"a list of members of at most {MAX_LIST >> 20} MiB",
            got=f"{length >> 20:,} MiB",
            do="unpack it, and ingest the folder",
        )


def _name(info: zipfile.ZipInfo) -> str:
    """The name of a member; one that is not marked as UTF-8 but is in it, or in GBK, is read so."""
    if info.flag_bits & UTF8_NAME or info.filename.isascii():
        return info.filename
    try:
        raw = info.filename.encode("cp437")
    except UnicodeEncodeError:
        return info.filename
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        pass
    try:
        return raw.decode("gb2312")  # two high bytes a sign: chance does not make that of other letters
    except UnicodeDecodeError:
        return info.filename


def _is_prose(name: Path) -> bool:
    return name.stem.lower().strip("_- ").startswith(PROSE)


def _nested(member: Member) -> SourceError:
    return SourceError(
        member.where,
        expected="plain files inside an archive",
        got=f"an archive in it ({member.named.suffix.lower()[1:]})",
        do="unpack the outer archive, then ingest what is in it",
    )
