"""In: a seed and a number. Out: the input of that number: files, and the options they are taken in with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Literal

from tests.bars.fuzz.hostile import SYMBOLS
from tests.bars.fuzz.names import BAD_CALENDARS, BAD_ZONES, CALENDARS, FILE_NAMES, ZONES
from tests.bars.fuzz.objects import make_binary, make_json
from tests.bars.fuzz.packed import pack, scratch
from tests.bars.fuzz.texts import damage, make_table, render
from tests.bars.vendor_samples import FILES

Mode = Literal["read", "store", "dry-run", "typed"]
MODES: Final[tuple[Mode, ...]] = ("read",) * 60 + ("store",) * 30 + ("dry-run",) * 5 + ("typed",) * 5
VENDORS: Final = tuple(dict.fromkeys(vendor for vendor, *_ in FILES))


@dataclass(frozen=True)
class Input:
    """One input: how it is taken in, files by name, options of the ingest, which of the files are named to it."""

    seed: int
    number: int
    mode: Mode
    files: Mapping[str, bytes]
    options: Mapping[str, Any]
    folder: bool
    form: str


def make(seed: int, number: int) -> Input:
    """The input `number` of the sequence of `seed`: always the same one."""
    chance = Random(f"{seed}/{number}")  # noqa: S311
    files: dict[str, bytes] = {}
    form, calendar, vendor = "", "XNYS", "auto"
    for _ in range(chance.choice((1,) * 9 + (2,))):
        data, name, calendar, vendor, form = _file(chance)
        files[name] = data
    return Input(
        seed,
        number,
        chance.choice(MODES),
        files,
        _options(chance, calendar, vendor),
        len(files) > 1 and chance.random() < 0.5,
        form,
    )


def _file(chance: Random) -> tuple[bytes, str, str, str, str]:
    kind = chance.choice(("text",) * 7 + ("json", "json", "binary"))
    vendor = "auto"
    if kind == "text":
        table = make_table(chance)
        for _ in range(chance.choice((0, 0, 1, 1, 1, 2, 2, 5))):
            table = damage(table, chance)
        data, name, calendar, vendor = render(table, chance), table.name, table.calendar, table.vendor
    else:
        data, name, calendar = (make_json if kind == "json" else make_binary)(chance)
    if chance.random() < 0.08:
        for _ in range(chance.choice((1, 1, 2, 5))):
            data = scratch(data, chance)
    if chance.random() < 0.12:
        data, name = pack(data, name, chance)
        kind = f"packed {kind}"
        if chance.random() < 0.15:
            data = scratch(data, chance)
    if chance.random() < 0.08:
        name = chance.choice(FILE_NAMES)
    return data, name, calendar, vendor, kind


def _options(chance: Random, calendar: str, vendor: str) -> dict[str, Any]:
    out: dict[str, Any] = {"calendar": calendar}
    if chance.random() < 0.08:
        out["calendar"] = chance.choice(CALENDARS)
    if chance.random() < 0.25:
        out["tz"] = chance.choice(ZONES)
    if chance.random() < 0.15:
        out["stamp"] = chance.choice(("open", "close"))
    if chance.random() < 0.15:
        out["vendor"] = chance.choice((vendor, chance.choice(VENDORS)))
    if chance.random() < 0.12:
        out["symbols"] = chance.choice((("AAPL",), ("AAPL", "MSFT"), (chance.choice(SYMBOLS),)))
    if chance.random() < 0.04:
        out["start"] = "2026-01-05"
        out["end"] = chance.choice(("2026-01-05", "2026-03-09", "9999-12-31"))
    if chance.random() < 0.04:
        out["hours"] = "extended"
    if chance.random() < 0.03:
        name, bad = chance.choice((("tz", BAD_ZONES), ("calendar", BAD_CALENDARS), ("vendor", ("", "nobody", "\x00"))))
        out[name] = chance.choice(bad)
    return out
