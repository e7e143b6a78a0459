"""In: a text file in UTF-8. Out: its first lines from the header on, how many come before, and what they said."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klinepred.bars.sources.member import Member
from klinepred.errors import SourceError

HEAD_BYTES: Final = 1 << 16
SEP: Final = re.compile(r"sep=(.)", re.IGNORECASE)
SEPARATORS: Final = ",;\t|"


@dataclass(frozen=True)
class Opening:
    """First lines that are not blank; lines of the file before them; what parts the fields; lines for the user."""

    lines: list[str]
    skip: int
    separator: str
    remarks: tuple[str, ...]


def read_opening(path: Path, member: Member) -> Opening:
    """The header and the first rows of a text that is not empty.

    Passed over, with a word: Excel's `sep=;`, lines of comment that begin with `#`, blank lines. A line of comment
    right above the rows that has as many fields as they have is the header.

    Raises
    ------
    SourceError
        The first line does not end within `HEAD_BYTES`, or all lines are comment.
    """
    with path.open("rb") as file:
        raw = file.read(HEAD_BYTES)
        cut = bool(file.read(1))
    if cut and b"\n" not in raw:
        raise SourceError(
            member.where,
            expected=f"lines of less than {HEAD_BYTES >> 10} KiB",
            got="a first line that is longer",
            do="export the bars as CSV, one row a line",
        )
    whole = raw[: raw.rfind(b"\n") + 1] if cut else raw
    text = whole.decode("utf-8-sig", errors="replace")
    lines = [line.removesuffix("\r").replace("\r", " ") for line in text.split("\n")]
    told, comments, start = "", 0, 0
    while start < len(lines) - 1:
        line = lines[start].strip()
        match = SEP.fullmatch(lines[start].strip(" "))
        if match is not None and not told and match[1] in SEPARATORS:
            told = match[1]
        elif line.startswith("#"):
            comments += 1
        elif line:
            break
        start += 1
    before = lines[start - 1].strip() if start else ""
    if before.startswith("#") and _is_header(before.lstrip("# "), lines[start]):
        start, comments = start - 1, comments - 1
        lines[start] = before.lstrip("# ")
    left = [line for line in lines[start:] if line.strip()]
    if not left:
        raise SourceError(
            member.where,
            expected="rows of bars",
            got="lines of comment alone" if comments else "an empty file",
            do="check the download or export",
        )
    separator = told or max(SEPARATORS, key=lambda sign: (left[0].count(sign), sign == ","))
    remarks = [f"{member.label}: separated by {told!r}, as its first line says"] if told else []
    remarks += [f"{member.label}: {comments} lines of comment before the header passed over"] if comments else []
    return Opening(left, start, separator, tuple(remarks))


def _is_header(comment: str, row: str) -> bool:
    """Whether a line of comment names the fields of the row below: as many, and words instead of numbers."""
    separator = max(SEPARATORS, key=lambda sign: row.count(sign))
    names = [name.strip() for name in comment.split(separator)]
    return len(names) >= 5 and len(names) == row.count(separator) + 1 and all(re.search(r"[^\W\d]", n) for n in names)
