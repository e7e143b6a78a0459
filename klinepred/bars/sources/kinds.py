"""In: the name and first bytes of a file. Out: which kind it is; a refusal that names the kinds that are not read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from klinepred.errors import SourceError
from klinepred.paths import no_text

TEXT: Final = (".csv", ".tsv", ".txt", ".tab")
BINARY: Final = (".parquet", ".pq", ".feather", ".arrow", ".ipc")
JSON: Final = (".json", ".jsonl", ".ndjson")
PLAIN: Final = (*TEXT, *BINARY, *JSON)
PACKED: Final = (".gz", ".gzip", ".bz2", ".xz", ".zst", ".zstd", ".zip")
BUNDLES: Final = (*PACKED, ".tar", ".tgz", ".7z", ".rar", ".lz4")
HEAD_BYTES: Final = 512

MAGIC: Final = (
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
)
FOREIGN: Final = (
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "unpack it, then ingest what is in it"),
    (b"Rar!", "a RAR archive", "unpack it, then ingest what is in it"),
    (b"\x04\x22\x4d\x18", "an lz4 file", "unpack it, then ingest what is in it"),
    (b"\xd0\xcf\x11\xe0", "an Excel workbook", "save the sheet as CSV"),
    (b"\x89HDF", "an HDF5 file", "export its table as Parquet or CSV"),
    (b"SQLite format 3", "an SQLite database", "export its table as CSV"),
    (b"FEA1", "a Feather file of version 1", "write it again as Feather version 2 or as Parquet"),
    (b"%PDF", "a PDF", "download the data themselves"),
    (b"<!doctype html", "a web page", "download the data themselves: this is what the site answered instead"),
    (b"<html", "a web page", "download the data themselves: this is what the site answered instead"),
    (b"<?xml", "XML", "export the table as CSV"),
)
"""Kinds of file that are named when they are refused, and what to do with them."""


def read_head(file: Path) -> bytes:
    """The first bytes of a file; SourceError where it cannot be opened, or its name is no text."""
    if fault := no_text(file):
        raise SourceError(ascii(str(file)), expected="a name in UTF-8", got=fault[0], do=fault[1])
    try:
        with file.open("rb") as data:
            return data.read(HEAD_BYTES)
    except OSError as error:
        raise SourceError(f"{file}", expected="a readable file", got=str(error), do="check its permissions") from error


def packing_of(head: bytes) -> str | None:
    """How the data are packed, by their first bytes; None = not in a way that is read."""
    return next((name for mark, name in MAGIC if head.startswith(mark)), None)


def refuse_foreign(head: bytes, where: str) -> None:
    """SourceError where the first bytes are those of a known kind of file that is not read."""
    for mark, what, do in FOREIGN:
        if head.lstrip().lower().startswith(mark.lower()):
            raise SourceError(where, expected="CSV, JSON, Parquet or Arrow, plain or packed", got=what, do=do)
    if head[257:262] == b"ustar":
        raise SourceError(
            where,
            expected="a plain file, or a zip of several",
            got="a tar archive",
            do="unpack it, then ingest the folder",
        )


def is_hidden(name: str) -> bool:
    """Whether a path is one that systems add: below `__MACOSX`, or with a part that begins with a dot."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return any(part.startswith(".") or part == "__MACOSX" for part in parts)
