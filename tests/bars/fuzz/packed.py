"""In: chance, bytes. Out: the bytes damaged, packed, or packed in a damaged archive."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import warnings
import zipfile
from random import Random

import pyarrow as pa

from tests.bars.fuzz.names import MEMBERS


def scratch(data: bytes, chance: Random) -> bytes:
    """`data` with one fault in its bytes."""
    if not data:
        return chance.randbytes(chance.choice((0, 1, 40)))
    spot, size = chance.randrange(len(data)), chance.choice((1, 1, 2, 8, 64))
    kind = chance.randrange(9)
    if kind == 0:
        return data[:spot]
    if kind == 1:
        return data[:spot] + data[spot + size :]
    if kind == 2:
        return data[:spot] + chance.randbytes(size) + data[spot:]
    if kind == 3:
        return data[:spot] + chance.randbytes(size) + data[spot + size :]
    if kind == 4:
        return data[:spot] + bytes([data[spot] ^ 1 << chance.randrange(8)]) + data[spot + 1 :]
    if kind == 5:
        other = chance.randrange(len(data))
        return data[:spot] + data[other : other + 200] + data[spot:]
    if kind == 6:
        return data[spot:]
    if kind == 7:
        signs = (b"\x00", b"\xff", b'"', b"\n", b"\r", b",", b"\x1f", b"\x80", b"\xe5\xbc", b"\xed\xa0\x80", b"-", b"e")
        return data[:spot] + chance.choice(signs) * size + data[spot:]
    return data[:spot] + data[:spot] + data[spot:]


def pack(data: bytes, name: str, chance: Random) -> tuple[bytes, str]:
    """`data` in one of the ways that are read, and a name for it."""
    kind = chance.choice(("gz", "bz2", "xz", "zst", "zip", "zip", "zip"))
    if kind == "gz":
        return gzip.compress(data, 1, mtime=0), f"{name}.gz"
    if kind == "bz2":
        return bz2.compress(data, 1), f"{name}.bz2"
    if kind == "xz":
        return lzma.compress(data, preset=0), f"{name}.xz"
    if kind == "zst":
        return pa.Codec("zstd").compress(data, asbytes=True), f"{name}.zst"
    return zipped(data, name, chance), f"{name}.zip"


def zipped(data: bytes, name: str, chance: Random) -> bytes:
    """A zip of `data`, some with more members, hostile names, one name twice, another archive inside."""
    out = io.BytesIO()
    method = chance.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as archive:
        warnings.simplefilter("ignore")  # one name twice
        archive.writestr(_member(chance.choice((name, name, chance.choice(MEMBERS) or "x")), method), data)
        for _ in range(chance.choice((0, 0, 1, 3))):
            inner = chance.choice(MEMBERS)
            if not inner:
                continue
            more = data if chance.random() < 0.7 else scratch(data, chance)
            archive.writestr(_member(inner, method), gzip.compress(more, mtime=0) if chance.random() < 0.05 else more)
        if chance.random() < 0.02:
            archive.writestr(_member("zeros.csv", method), bytes(3 << 20))
    whole = bytearray(out.getvalue())
    if chance.random() < 0.04:  # said to be encrypted
        for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            spot = whole.find(mark)
            if spot >= 0:
                whole[spot + offset] |= 1
    return bytes(whole)


def _member(name: str, method: int) -> zipfile.ZipInfo:
    """Always of one date: an input must come out the same each time."""
    made = zipfile.ZipInfo(name, (2026, 1, 5, 0, 0, 0))
    made.compress_type = method
    return made
