"""In: a right input, a seed. Out: the same input, damaged: bytes, numbers and words exchanged, doubled, cut, moved."""

from __future__ import annotations

import re
from random import Random
from typing import Final

WORDS: Final = (
    *(
        b"null",
        b"true",
        b"-1",
        b"0",
        b"1e999",
        b"-0.0",
        b"NaN",
        b"Infinity",
        b"[]",
        b"{}",
        b'""',
        b"18446744073709551616",
    ),
    *(b"1e-320", b"[[[[[[[[", b'{"a":' * 40, b"\x00", b"\xff\xfe", b"\xed\xa0\x80", "\u202e".encode(), b"../evil"),
    *(b"9999-12-31T23:59:59Z", b"0001-01-01T00:00:00Z", b"2026-02-30", b"inf", b"1_000", b"0x10", b"''", b"#", b"="),
)
TOKEN: Final = re.compile(rb'"[^"]*"|-?\d[\d.eE+-]*|\w+')


def damaged(right: bytes, seed: int) -> bytes:
    """One to four damages; the same seed gives the same bytes."""
    chance, data = Random(seed), right  # noqa: S311
    for _ in range(chance.randint(1, 4)):
        data = chance.choice((_token, _token, _token, _swap, _byte, _cut, _double))(data, chance)
    return data


def _token(data: bytes, chance: Random) -> bytes:
    found = list(TOKEN.finditer(data))
    if not found:
        return data
    spot = chance.choice(found)
    return data[: spot.start()] + chance.choice(WORDS) + data[spot.end() :]


def _swap(data: bytes, chance: Random) -> bytes:
    found = list(TOKEN.finditer(data))
    if len(found) < 2:
        return data
    one, two = sorted(chance.sample(found, 2), key=lambda match: match.start())
    return data[: one.start()] + two[0] + data[one.end() : two.start()] + one[0] + data[two.end() :]


def _byte(data: bytes, chance: Random) -> bytes:
    spot = chance.randrange(len(data) + 1)
    return data[:spot] + bytes([chance.randrange(256)]) + data[spot + chance.randrange(2) :]


def _cut(data: bytes, chance: Random) -> bytes:
    first, last = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return data[:first] + data[last:]


def _double(data: bytes, chance: Random) -> bytes:
    first, last = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return data[:last] + data[first : min(last, first + 2000)] + data[last:]
