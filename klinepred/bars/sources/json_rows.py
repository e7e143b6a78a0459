"""In: a JSON file of bars in any usual form. Out: its rows with the columns that bars need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import polars as pl

from klinepred.bars.clean import REJECT_SCHEMA
from klinepred.bars.sources.columns import SYMBOLS, find_layout, plain
from klinepred.bars.sources.delimited import Rows
from klinepred.bars.sources.encoding import to_utf8
from klinepred.bars.sources.fields import FEW
from klinepred.bars.sources.json_forms import Found, find_rows, is_answer, more_of
from klinepred.bars.sources.json_table import name_fields, to_columns
from klinepred.bars.sources.json_text import JsonItems
from klinepred.bars.sources.member import Member
from klinepred.bars.sources.numbers import read_numbers
from klinepred.bars.sources.room import Room
from klinepred.bars.sources.symbols import to_text
from klinepred.calendar import zone_of
from klinepred.errors import CalendarError, SourceError

SYMBOL: Final = "symbol"
AWARE: Final = re.compile(r"\d{9,}(\.\d+)?|.*(Z|UTC|GMT|[+-]\d\d:?\d\d)")
"""Stamps that need no zone: epoch numbers, and texts that say it."""


def read_json(data: Path, member: Member, room: Room) -> Rows:
    """Read an array of objects or of lists, JSON Lines, or an answer of a service with rows somewhere in it.

    Raises
    ------
    SourceError
        The JSON is damaged, too large, nested too deeply, or holds no rows of bars; more than a few rows are none.
    """
    text = to_utf8(data, member, room)
    items = JsonItems(text.path, member)
    remarks: dict[str, None] = dict.fromkeys(text.remarks)
    frames: list[pl.DataFrame] = []
    nested: dict[str, None] = {}
    odd: list[str] = []
    zones: dict[str, None] = {}
    for found in _found(items, member, remarks):
        made = to_columns(found.rows, found.names)
        odd += made.odd
        nested |= dict.fromkeys(made.nested)
        if made.frame.is_empty():
            continue
        frame = made.frame
        if found.symbol is not None and not any(plain(name) in SYMBOLS for name in frame.columns):
            frame = frame.with_columns(pl.lit(found.symbol).alias(SYMBOL))
            remarks[f"{member.label}: symbol {found.symbol}, as it says beside the rows"] = None
        if found.zone is not None:
            zones[found.zone] = None
        frames.append(frame)
    if items.cut_off:
        odd.append("a line that is cut off")
    if not frames:
        raise SourceError(
            member.where, expected="at least one row of bars", got="none", do="check the download or export"
        )
    frame = _joined(frames, member)
    if frame.columns[0] == "field 1":
        frame, line = name_fields(frame, member)
        remarks[f"{member.label}: {line}"] = None
    if items.repeats:
        remarks[f"{member.label}: {items.repeats:,} entries twice under one key, equal: kept once"] = None
    return _rows(frame, member, remarks, tuple(nested), odd, tuple(zones))


def _found(items: JsonItems, member: Member, remarks: dict[str, None]) -> Iterator[Found]:
    """Rows of each batch of items, those of one kind together."""
    for batch in items:
        answers = [item for item in batch if is_answer(item)]
        rows = [item for item in batch if not is_answer(item)] if answers else batch
        if rows:
            yield Found(rows)
        for answer in answers:
            if key := more_of(answer):
                remarks[f"{member.label}: one page of several, it says by {key}: take the others in too"] = None
            yield from find_rows(answer, member)


def _joined(frames: list[pl.DataFrame], member: Member) -> pl.DataFrame:
    if len(frames) > 1 and len({SYMBOL in frame.columns for frame in frames}) > 1:
        raise SourceError(
            member.where,
            expected="a symbol beside all rows, or beside none",
            got="some without",
            do="write the symbol into each row",
        )
    if len({frame.width if frame.columns[0] == "field 1" else 0 for frame in frames}) > 1:
        raise SourceError(
            member.where,
            expected="rows of one kind",
            got="objects and lists of fields, or lists of several lengths",
            do="write all rows as objects that name their fields",
        )
    return pl.concat(frames, how="diagonal_relaxed")


def _rows(
    frame: pl.DataFrame,
    member: Member,
    remarks: dict[str, None],
    nested: tuple[str, ...],
    odd: list[str],
    zones: tuple[str, ...],
) -> Rows:
    if len(odd) > FEW * (frame.height + len(odd)) and odd != ["a line that is cut off"]:
        raise SourceError(
            member.where,
            expected=f"rows of {frame.width} fields",
            got=f"{len(odd):,} of {frame.height + len(odd):,} that are not, first {odd[0]}",
            do="mend or remove the rows that differ",
        )
    texts = {name: [str(value) for value in frame.get_column(name).head(50)] for name in frame.columns}
    try:
        layout = find_layout(frame.columns, where=member.where, sample=texts)
    except SourceError as error:
        if not nested:
            raise
        got = f"{error.got}; and {', '.join(map(repr, nested[:5]))} with objects or lists in them"
        raise SourceError(error.summary, expected=error.expected, got=got, do=error.do) from error
    frame = frame.select(layout.used)
    if layout.symbol is not None:
        symbols, lines = to_text(frame.get_column(layout.symbol), member)
        frame = frame.with_columns(symbols)
        remarks |= dict.fromkeys(lines)
    frame = read_numbers(frame, layout.numbers, prices=layout.numbers[:4], where=member.where)
    zone = _zone(zones, texts[layout.stamp])
    if odd:
        remarks[f"{member.label}: {len(odd):,} rows set aside, first: {odd[0]}"] = None
    rejects = pl.DataFrame({"reason": odd}, schema={"reason": pl.String}).select(
        *(pl.col(n) if n == "reason" else pl.lit(None, kind).alias(n) for n, kind in REJECT_SCHEMA.items())
    )
    return Rows(frame, layout, tuple(remarks), zone=zone, rejects=rejects, names=tuple(texts), form="JSON")


def _zone(zones: tuple[str, ...], stamps: list[str]) -> str | None:
    """The one zone that is said, where the stamps need it and it is known."""
    if len(zones) != 1 or all(AWARE.fullmatch(stamp.strip()) for stamp in stamps):
        return None
    try:
        zone_of(zones[0])
    except CalendarError:
        return None
    return zones[0]
