"""In: a file, plain or packed (gzip, bzip2, xz, zstd, zip). Out: its plain members, unpacked one at a time."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Final, cast

from klinepred.bars.sources.kinds import packing_of, read_head, refuse_foreign
from klinepred.bars.sources.member import Member
from klinepred.bars.sources.room import CHUNK, Room
from klinepred.bars.sources.zipped import list_zip, refuse_huge_list
from klinepred.errors import SourceError

MAX_BYTES: Final = 8 << 30
"""Bytes that one archive may unpack to, all members together."""
MAX_RATIO: Final = 200
"""How many times its own size an archive may unpack to, past `RATIO_FROM` bytes. Bars as text pack 4 to 30 times."""
RATIO_FROM: Final = 64 << 20
XZ_MEMORY: Final = 256 << 20
"""Bytes of memory that unpacking xz may take; `xz -9` needs 65 MiB."""
DAMAGE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    ValueError,
    OverflowError,
)
"""What readers of packed data raise when the data are damaged, or packed in a way they do not know."""


class Budget:
    """Counts what one archive unpacks to, all its members together."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._size = file.stat().st_size
        self._spent = 0

    def spend(self, stream: BinaryIO) -> Iterator[bytes]:
        """The chunks of `stream`, up to the limits."""
        while chunk := stream.read(CHUNK):
            self._spent += len(chunk)
            self.check(self._spent)
            yield chunk

    def check(self, size: int) -> None:
        """SourceError when `size` unpacked bytes are too many for this file."""
        if size > MAX_BYTES:
            raise SourceError(
                f"{self._file}",
                expected=f"at most {MAX_BYTES >> 30} GiB when unpacked",
                got="more",
                do="unpack it yourself, and ingest the files one after another",
            )
        if size > max(RATIO_FROM, MAX_RATIO * self._size):
            raise SourceError(
                f"{self._file}",
                expected=f"an archive that unpacks to at most {MAX_RATIO} times its size",
                got=f"over {size >> 20:,} MiB out of {self._size:,} bytes: no file of bars packs so well",
                do="check where it comes from; if you trust it, unpack it yourself",
            )


@dataclass(frozen=True)
class Box:
    """What is in one file: members to read, refusals of others, lines for the user."""

    file: Path
    members: tuple[Member, ...]
    refused: tuple[tuple[Member, SourceError], ...] = ()
    remarks: tuple[str, ...] = ()
    kind: str = ""
    archive: zipfile.ZipFile | None = None
    budget: Budget | None = None

    @cached_property
    def sha256(self) -> str:
        """The first 16 hex digits of the digest of `file`, packed as it is."""
        with self.file.open("rb") as data:
            return hashlib.file_digest(data, "sha256").hexdigest()[:16]

    def unpack(self, member: Member, room: Room) -> Path:
        """Where the plain bytes of `member` are: at its own path, or in a copy that `room` keeps.

        Raises
        ------
        SourceError
            The data are damaged, or more than the limits of this module allow, or packed once more.
        """
        if self.budget is None:
            return member.outer
        try:
            with self._open(member) as stream:
                path = room.keep(self.budget.spend(stream), where=member.where)
        except DAMAGE as error:
            raise _damaged(member.where, self.kind, error) from error
        head = read_head(path)
        if (inside := packing_of(head)) is not None:
            raise SourceError(
                member.where,
                expected="a plain file inside an archive",
                got=f"{inside} data inside it",
                do="unpack the outer archive, then ingest what is in it",
            )
        refuse_foreign(head, member.where)
        return path

    def _open(self, member: Member) -> BinaryIO:
        if self.archive is not None:
            return cast(BinaryIO, self.archive.open(self.archive.infolist()[member.spot]))
        if self.kind == "gzip":
            return cast(BinaryIO, gzip.open(member.outer, "rb"))
        if self.kind == "bzip2":
            return cast(BinaryIO, bz2.open(member.outer, "rb"))
        if self.kind == "xz":
            return cast(BinaryIO, _Xz(member.outer))
        import pyarrow as pa  # the standard library reads zstd from Python 3.14 on

        return cast(BinaryIO, pa.input_stream(str(member.outer), compression="zstd"))


class _Xz:
    """A stream of xz data, several after one another included, that keeps to `XZ_MEMORY`."""

    def __init__(self, file: Path) -> None:
        self._data = file.open("rb")
        self._reader = lzma.LZMADecompressor(memlimit=XZ_MEMORY)

    def __enter__(self) -> _Xz:
        return self

    def __exit__(self, *_: object) -> None:
        self._data.close()

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end."""
        while True:
            if self._reader.eof:
                rest = self._reader.unused_data or self._data.read(CHUNK)
                rest = rest.lstrip(b"\x00")  # padding between streams
                if not rest:
                    return b""
                self._reader = lzma.LZMADecompressor(memlimit=XZ_MEMORY)
            else:
                rest = self._data.read(CHUNK) if self._reader.needs_input else b""
                if self._reader.needs_input and not rest:
                    raise EOFError("the data end before they should")
            if chunk := self._reader.decompress(rest, size):
                return chunk


@contextmanager
def opened(file: Path) -> Iterator[Box]:
    """What is in `file`, by its first bytes; an archive stays open meanwhile.

    Raises
    ------
    SourceError
        The file cannot be read, is of a kind that is named but not read, a damaged or encrypted archive, or one
        without a file of bars.
    """
    head = read_head(file)
    kind = packing_of(head)
    if kind is None:
        refuse_foreign(head, str(file))
        yield Box(file, (Member(file),))
        return
    if kind != "zip":
        yield Box(file, (Member(file),), kind=kind, budget=Budget(file))
        return
    try:
        refuse_huge_list(file)
        archive = zipfile.ZipFile(file)
    except DAMAGE as error:
        raise _damaged(str(file), "zip", error) from error
    with archive:
        members, refused, remarks = list_zip(file, archive.infolist())
        budget = Budget(file)
        budget.check(sum(archive.infolist()[member.spot].file_size for member in members))
        yield Box(file, members, refused, remarks, "zip", archive, budget)


def _damaged(where: str, kind: str, error: BaseException) -> SourceError:
    text = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    return SourceError(
        where,
        expected=f"a whole {kind} file",
        got=text,
        do="download or pack it again: it is cut off, damaged, or packed in a way that is not read",
    )
