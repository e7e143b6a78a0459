"""In: a text file in any usual encoding, with any line ends. Out: the same in UTF-8 with LF, and what it was."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klinepred.bars.sources.columns import DATES, ROLES, STAMPS, SYMBOLS, TIMES, VOLUMES, plain
from klinepred.bars.sources.member import Member
from klinepred.bars.sources.room import CHUNK, Room
from klinepred.errors import SourceError

HEAD_BYTES: Final = 1 << 16
BOMS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
LEGACY: Final = {
    "gb18030": "GB18030 (GBK)",
    "cp1252": "Windows-1252",
    "big5": "Big5",
    "cp932": "Shift-JIS",
    "cp949": "EUC-KR",
    "cp1251": "Windows-1251",
}
KNOWN: Final = frozenset(
    word
    for word in (*STAMPS, *DATES, *TIMES, *VOLUMES, *SYMBOLS, *(name for names in ROLES.values() for name in names))
    if not word.isascii()
)
"""Column names with letters beyond ASCII: the evidence for an encoding."""
RUN: Final = re.compile(rb"[\x80-\xff]+")
HIGH: Final = bytes(range(128, 256))
MONEY: Final = "€£¥°"
MANY_RUNS: Final = 20_000


@dataclass(frozen=True)
class Text:
    """Where the text is, in UTF-8 with lines that end in LF or CRLF; lines for the user."""

    path: Path
    remarks: tuple[str, ...] = ()


def to_utf8(path: Path, member: Member, room: Room) -> Text:
    """Text of `path` as UTF-8: the file itself where it is that already, else a copy in `room`.

    UTF-16 and UTF-32 show themselves by their mark, UTF-16 without one by its zero bytes. Of the older encodings one
    is taken where it makes the header's names known column names, or where the letters speak for one alone: single
    high bytes within words for Windows-1252, pairs that are Chinese signs for GB18030. Nothing is guessed beyond that.

    Raises
    ------
    SourceError
        The file is empty, no text, or in an encoding that it does not show.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if not head.strip():
        raise SourceError(member.where, expected="rows of bars", got="an empty file", do="check the download or export")
    codec = next((name for mark, name in BOMS if head.startswith(mark)), None) or _wide(head, member)
    remark = f"{codec.upper().removesuffix('-LE').removesuffix('-BE')}" if codec else ""
    if codec is None and not _is_utf8(path):
        codec = _legacy(path, head, member)
        remark = LEGACY[codec]
    sample = head.decode(codec or "utf-8", errors="replace")
    old_mac = "\r" in sample and "\n" not in sample
    if codec is None and not old_mac:
        return Text(path)
    lines = [f"{member.label}: read as {remark} text"] if codec else []
    lines += [f"{member.label}: lines end in CR alone"] if old_mac else []
    try:
        copy = room.keep(_chunks(path, codec or "utf-8", old_mac=old_mac), where=member.where)
    except UnicodeError as error:
        raise SourceError(
            member.where,
            expected=f"text in {remark or 'UTF-8'} to its end",
            got=f"bytes that are none: {error.reason if isinstance(error, UnicodeDecodeError) else error}",
            do="save the file as CSV in UTF-8",
        ) from error
    return Text(copy, tuple(lines))


def _wide(head: bytes, member: Member) -> str | None:
    """UTF-16 without a mark: in ASCII text every other byte is 0."""
    if b"\x00" not in head:
        return None
    half = max(1, len(head) // 2)
    first, second = head[0::2].count(0) / half, head[1::2].count(0) / half
    codec = "utf-16-le" if second > 0.6 and first < 0.05 else "utf-16-be" if first > 0.6 and second < 0.05 else None
    if codec is not None:
        text = head[: len(head) // 2 * 2].decode(codec, errors="replace")
        if all(char.isprintable() or char in "\r\n\t" for char in text[:2000]):
            return codec
    raise SourceError(
        member.where,
        expected="text, JSON, Parquet or Arrow",
        got="bytes that are none of these",
        do="export the bars as CSV in UTF-8",
    )


def _is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    plain_so_far = True
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                plain_so_far = plain_so_far and chunk.isascii()
                if not plain_so_far:
                    decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _legacy(path: Path, head: bytes, member: Member) -> str:
    """The older encoding that the names of the columns, or else the letters, speak for."""
    header = next((line for line in re.split(rb"[\r\n]+", head) if line.strip() and not line.startswith(b"#")), b"")
    known = {codec: _known(header, codec) for codec in LEGACY}
    most = max(known.values())
    if most:
        named = [codec for codec, count in known.items() if count == most]
        if len(named) == 1:
            return named[0]
    runs = _runs(path)
    latin = all(
        len(run) <= 2
        and (
            (within and run.decode("cp1252", errors="replace").isalpha())
            or run.decode("cp1252", errors="replace") in MONEY
        )
        for run, within in runs
    )
    chinese = all(_is_chinese(run) for run, _ in runs) and not all(
        run.decode("cp1252", errors="replace").isalpha() for run, _ in runs
    )
    if latin != chinese:
        return "cp1252" if latin else "gb18030"
    spot = next((match.start() for match in re.finditer(rb"[\x80-\xff]", head)), len(head))
    raise SourceError(
        member.where,
        expected="text in UTF-8, or in an encoding that the names of its columns show",
        got=f"another encoding (byte {spot})",
        do="save the file as CSV in UTF-8",
    )


def _known(header: bytes, codec: str) -> int:
    try:
        text = header.decode(codec)
    except UnicodeDecodeError:
        return 0
    return sum(plain(name) in KNOWN for name in re.split(r"[,;\t|]", text))


def _runs(path: Path) -> list[tuple[bytes, bool]]:
    """Runs of high bytes, each once, and whether an ASCII letter stands beside them."""
    found: dict[tuple[bytes, bool], None] = {}
    rest = b""
    with path.open("rb") as file:
        while (chunk := file.read(CHUNK)) and len(found) < MANY_RUNS:
            data = rest + chunk
            whole = len(data.rstrip(HIGH))  # a run at the end may go on in the next chunk
            rest = data[max(0, whole - 1) :]
            if not data.isascii():
                found |= dict.fromkeys(_beside(data, hit) for hit in RUN.finditer(data, 0, whole))
    found |= dict.fromkeys(_beside(rest, hit) for hit in RUN.finditer(rest))
    return list(found)


def _beside(data: bytes, hit: re.Match[bytes]) -> tuple[bytes, bool]:
    return hit[0], (data[hit.start() - 1 : hit.start()] + data[hit.end() : hit.end() + 1]).lower().islower()


def _is_chinese(run: bytes) -> bool:
    try:
        return all("\u4e00" <= char <= "\u9fff" or "\u3000" <= char <= "\u303f" or char >= "\uff00"
                   for char in run.decode("gb2312"))  # fmt: skip
    except UnicodeDecodeError:
        return False


def _chunks(path: Path, codec: str, *, old_mac: bool) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(codec)()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            text = decoder.decode(chunk)
            yield (text.replace("\r", "\n") if old_mac else text).encode()
    rest = decoder.decode(b"", final=True)
    yield (rest.replace("\r", "\n") if old_mac else rest).encode()
