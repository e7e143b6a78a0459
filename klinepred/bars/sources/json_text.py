"""In: a JSON or JSON Lines file. Out: its items, some at a time: elements of an array, values of lines, one object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from klinepred.bars.sources.member import Member
from klinepred.errors import SourceError

MAX_JSON: Final = 512 << 20
"""Bytes of a JSON file whose rows are an array: its text is held in memory, about three times its size in all."""
MAX_OBJECT: Final = 256 << 20
"""Bytes of a JSON file that is one object, which is held in memory as a whole, at about eight times its size."""
BATCH: Final = 20_000
"""Items taken at a time."""
SPACE: Final = re.compile(r"\s*")
FIRST_LINE: Final = 1 << 20
HALVES: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\."
)
"""Two halves of one sign, half of one alone, any other escape."""


class JsonItems:
    """The items of one file; after they were read, what was odd about them.

    Attributes
    ----------
    repeats
        Keys that came twice in one object with the same value.
    cut_off
        The last line of JSON Lines ends in the middle.
    """

    def __init__(self, path: Path, member: Member) -> None:
        self.repeats = 0
        self.cut_off = False
        self._path = path
        self._member = member
        self._decoder = json.JSONDecoder(object_pairs_hook=self._pairs, parse_constant=lambda _: None)

    def __iter__(self) -> Iterator[list[Any]]:
        try:
            lines = self._is_lines()
            self.repeats = 0
            yield from self._lines() if lines else self._whole()
        except RecursionError:
            raise self._wrong("brackets nested hundreds deep") from None
        except ValueError as error:  # json.JSONDecodeError among them
            raise self._wrong(_place(error)) from error

    def _pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            first: dict[str, Any] = {}
            for key, value in pairs:
                if key in first and first[key] != value:
                    raise SourceError(
                        self._member.where,
                        expected="each key once in an object",
                        got=f"{key[:80]!r} twice, with other values",
                        do="find out which of them holds, and remove the other",
                    )
                first[key] = value
            self.repeats += len(pairs) - len(made)
        return made

    def _is_lines(self) -> bool:
        """Whether the first line is a whole JSON value with more below it."""
        with self._path.open(encoding="utf-8-sig", newline="\n") as file:
            line = next((line for line in iter(lambda: file.readline(FIRST_LINE), "") if line.strip()), "")
            more = line.endswith("\n") and any(rest.strip() for rest in islice(file, 100))
        try:
            self._decode(line)
        except (ValueError, RecursionError, SourceError):
            return self._member.named.suffix.lower() in (".jsonl", ".ndjson") and more
        return more

    def _decode(self, text: str) -> Any:
        return self._decoder.decode(_without_halves(text))

    def _lines(self) -> Iterator[list[Any]]:
        number = 0
        with self._path.open(encoding="utf-8-sig", newline="\n") as file:
            while lines := list(islice(file, BATCH)):
                filled = [line for line in lines if line.strip()]
                before = self.repeats
                try:
                    values = self._decode("[" + ",".join(filled) + "]")
                except ValueError:
                    values = None
                if values is None or len(values) != len(filled):
                    self.repeats = before
                    values = list(self._one_by_one(lines, number, last=len(lines) < BATCH))
                number += len(lines)
                yield values

    def _one_by_one(self, lines: list[str], before: int, *, last: bool) -> Iterator[Any]:
        for spot, line in enumerate(lines):
            try:
                if line.strip():
                    yield self._decode(line)
            except ValueError as error:
                if last and spot == len(lines) - 1 and not line.endswith("\n") and before + spot:
                    self.cut_off = True
                    return
                raise self._wrong(f"line {before + spot + 1:,}: {_place(error)}") from error

    def _whole(self) -> Iterator[list[Any]]:
        size = self._path.stat().st_size
        self._fits(size, MAX_JSON)
        text = _without_halves(self._path.read_text(encoding="utf-8-sig"))
        spot = SPACE.match(text, 0).end()  # type: ignore[union-attr]
        if text[spot : spot + 1] != "[":
            self._fits(size, MAX_OBJECT)
            yield [self._decode(text)]
            return
        batch: list[Any] = []
        for item in self._elements(text, spot + 1):
            batch.append(item)
            if len(batch) == BATCH:
                yield batch
                batch = []
        yield batch

    def _elements(self, text: str, spot: int) -> Iterator[Any]:
        skip, decode = SPACE.match, self._decoder.raw_decode
        spot = skip(text, spot).end()  # type: ignore[union-attr]
        while text[spot : spot + 1] != "]":
            value, spot = decode(text, spot)
            yield value
            spot = skip(text, spot).end()  # type: ignore[union-attr]
            if text[spot : spot + 1] == ",":
                spot = skip(text, spot + 1).end()  # type: ignore[union-attr]
            elif text[spot : spot + 1] != "]":
                raise json.JSONDecodeError("Expecting ',' or ']'", text, spot)
        if text[spot + 1 :].strip():
            raise json.JSONDecodeError("Extra data", text, spot + 1)

    def _fits(self, size: int, limit: int) -> None:
        if size > limit:
            raise SourceError(
                self._member.where,
                expected=f"JSON of at most {limit >> 20:,} MiB in one piece",
                got=f"{size >> 20:,} MiB",
                do="write it as JSON Lines (one row a line), CSV or Parquet, which may be of any size",
            )

    def _wrong(self, got: str) -> SourceError:
        return SourceError(
            self._member.where,
            expected="whole JSON, or one JSON value a line",
            got=got,
            do="download or export it again: it is cut off or damaged",
        )


def is_json(head: bytes, ending: str) -> bool:
    """Whether a file is JSON, by its ending or its first sign, in UTF-8 or UTF-16."""
    first = head.replace(b"\x00", b"").lstrip(b"\xff\xfe\xef\xbb\xbf \t\r\n")[:1]
    return ending in (".json", ".jsonl", ".ndjson") or first in (b"[", b"{")


def _place(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        at_end = error.pos >= len(error.doc.rstrip())
        return f"{error.msg} " + ("at its end" if at_end else f"at character {error.pos:,}")
    return str(error).splitlines()[0][:200]


def _without_halves(text: str) -> str:
    """JSON text in which half a sign, escaped, is the sign for damage: no text can hold it."""
    if "\\ud" not in text and "\\uD" not in text:
        return text
    return HALVES.sub(lambda found: "\\ufffd" if found.end() - found.start() == 6 else found.group(), text)
