"""In: rows and a path. Out: a file that tells whether it is whole; what else than the set decides its numbers."""

# Arrow, not Parquet: a third of the time to write and to read. Arrow itself would not notice a flipped bit: a checksum
# follows its bytes.

from __future__ import annotations

import hashlib
import io
import secrets
import zlib
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

import polars as pl
from polars.exceptions import PanicException, PolarsError

from klinepred import aliases, calendar, schema, sessions
from klinepred.errors import FeatureError

_SUM_BYTES: Final = 4
_PACKAGES: Final = ("klinepred", "polars", "polars-talib", "numpy", "exchange_calendars")


def read_kept(path: Path, columns: list[str] | None = None) -> pl.DataFrame | None:
    """The file's columns; None, and the file is gone, where it is not as it was written."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    body = content[:-_SUM_BYTES]
    if body and zlib.crc32(body) == int.from_bytes(content[-_SUM_BYTES:], "big"):
        try:
            return pl.read_ipc(body, columns=columns)
        except (OSError, PolarsError, PanicException):  # not written by this function
            pass
    path.unlink(missing_ok=True)
    return None


def whole(path: Path, columns: list[str] | None = None) -> pl.DataFrame:
    """The columns of a file that was just brought up to date.

    Raises
    ------
    FeatureError
        It is gone, or not as it was written.
    """
    table = read_kept(path, columns)
    if table is None:
        raise FeatureError(
            f"computed features in {path.parent}",
            expected=f"{path.name} as it was written a moment ago",
            got="another content, or none: something else writes there, or the disk fails",
            do="run the command again; data/features of the workspace may be deleted at any time",
        )
    return table


def write_kept(rows: pl.DataFrame, path: Path) -> None:
    """Put `rows` at `path` whole; the folder is locked. Not forced to the disk: a torn file is computed again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    rows.write_ipc(buffer)
    body = buffer.getbuffer()
    # a machine that was given up may still write the same file: two of one name would mix
    part = path.with_suffix(f".{secrets.token_hex(4)}.part")
    try:
        with part.open("wb") as out:
            out.write(body)
            out.write(zlib.crc32(body).to_bytes(_SUM_BYTES, "big"))
        part.replace(path)
    except OSError as error:  # of a full disk, Python does not say which file it was
        part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


@cache
def tools() -> str:
    """8 hex digits over what computes features besides their formulas: versions, klinepred's own code."""
    digest = hashlib.sha256("|".join(f"{name} {version(name)}" for name in _PACKAGES).encode())
    modules = (Path(str(module.__file__)) for module in (aliases, calendar, schema, sessions))
    for path in (*sorted(Path(__file__).parent.glob("*.py")), *modules):
        digest.update(path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()[:8]
