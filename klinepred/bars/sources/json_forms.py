"""In: an answer of a service, decoded from JSON. Out: the rows in it, with the symbol and zone that it says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from klinepred.bars.sources.columns import ROLES, STAMPS, plain
from klinepred.bars.sources.member import Member
from klinepred.errors import SourceError

KRAKEN: Final = ("time", "open", "high", "low", "close", "vwap", "volume", "count")
INDEX: Final = "index level 0"
"""Name of the stamps where they are keys instead of a column."""
MARKET: Final = re.compile(r"[A-Z0-9^][A-Z0-9.\-/^=:_]{0,24}")
"""Keys that are symbols rather than words."""
NUMBERED: Final = re.compile(r"\d{4}-\d\d-\d\d.*|\d+")
"""Keys that are stamps, or count rows."""
SYMBOL_KEYS: Final = ("symbol", "ticker", "instrument", "instid", "productid", "pair", "digitalcurrencycode")
ZONE_KEYS: Final = ("timezone", "exchangetimezone")
LEAST: Final = 6
"""Fields of a row that is a list: stamp, open, high, low, close, volume."""
COMPLAINTS: Final = (
    "errormessage",
    "note",
    "information",
    "error",
    "errors",
    "message",
    "msg",
    "detail",
    "description",
)
MORE: Final = ("next_page_token", "next_url", "nextPageToken", "nextPageCursor")
DEEP: Final = 6
FEW_KEYS: Final = 200
"""An object of more keys is no row; its keys are stamps or symbols."""


@dataclass(frozen=True)
class Found:
    """Rows in one place of an answer.

    Attributes
    ----------
    rows
        Objects, or lists of fields in the order of `names` (of the usual one where that is empty).
    symbol, zone
        As the answer says them beside the rows.
    """

    rows: Sequence[Any]
    names: tuple[str, ...] = ()
    symbol: str | None = None
    zone: str | None = None


def is_row(item: object) -> bool:
    """Whether an item is a row itself rather than an answer with rows in it."""
    if isinstance(item, list):
        return len(item) >= LEAST and not any(isinstance(value, (list, dict)) for value in item)
    if not isinstance(item, dict):
        return False
    keys = _price_keys(item)
    return len(keys) == len(ROLES) and not any(isinstance(item[key], (list, dict)) for key in keys)


def is_answer(item: object) -> bool:
    """Whether an item may have rows in it, or says why it has none, rather than being one itself."""
    if not isinstance(item, dict) or is_row(item):
        return False
    return any(isinstance(value, (list, dict)) for value in item.values()) or any(_complaints(item))


def find_rows(answer: Mapping[str, Any], member: Member) -> list[Found]:
    """All rows in an answer of a service or in a table that pandas wrote.

    Read are objects that hold lists of rows under any name (Polygon, Alpaca, Twelve Data, Binance, OKX, Bybit, Kraken),
    columns as lists (Finnhub, Yahoo's chart), rows by stamp (Alpha Vantage), and pandas' orients columns, index,
    list, split and table.

    Raises
    ------
    SourceError
        There are none; what the answer says instead is quoted.
    """
    found = list(_search(answer, None, None, 0))
    if found:
        return found
    said = next(_complaints(answer), "")
    keys = ", ".join(map(repr, list(answer)[:8]))
    raise SourceError(
        member.where,
        expected="rows of bars in the JSON",
        got=f"the answer {said[:200]!r}" if said else f"an object without any: keys {keys}"[:300],
        do="ask the service again, then ingest what it answers" if said else "store the rows as an array of objects",
    )


def more_of(answer: Mapping[str, Any]) -> str | None:
    """The key by which an answer says that it is one page of several."""
    return next((key for key in MORE if answer.get(key)), None)


def _search(node: Mapping[str, Any], symbol: str | None, zone: str | None, depth: int) -> Iterator[Found]:
    symbol, zone = _said(node, SYMBOL_KEYS) or symbol, _said(node, ZONE_KEYS) or zone
    keys = _price_keys(node)
    if isinstance(node.get("indicators"), dict) and "timestamp" in node:  # Yahoo's chart
        quotes = node["indicators"].get("quote")
        quote = next((item for item in quotes if isinstance(item, dict)), {}) if isinstance(quotes, list) else {}
        yield from _columns({"timestamp": node["timestamp"], **quote}, symbol, zone)
    elif isinstance(node.get("columns"), list) and isinstance(node.get("data"), list):  # pandas, split
        data, index = node["data"], node.get("index")
        stamps = index if isinstance(index, list) and len(index) == len(data) else [None] * len(data)
        rows = [[stamp, *(row if isinstance(row, list) else ())] for stamp, row in zip(stamps, data, strict=True)]
        yield Found(rows, (INDEX, *map(str, node["columns"])), symbol, zone)
    elif len(keys) == len(ROLES) and all(isinstance(node[key], (list, dict)) for key in keys):
        yield from _columns(node, symbol, zone)
    elif node and all(isinstance(row, dict) and is_row(row) for row in node.values()):
        yield from _by_key(node, symbol, zone)
    elif depth < DEEP:
        for key, value in node.items():
            name = symbol or (key if MARKET.fullmatch(key) else None)
            if isinstance(value, list) and any(map(is_row, value)):
                kraken = "last" in node and all(isinstance(item, list) and len(item) == 8 for item in value)
                yield Found(value, KRAKEN if kraken else (), name, zone)
            elif isinstance(value, list):
                for item in value:
                    if isinstance(item, dict):
                        yield from _search(item, symbol, zone, depth + 1)
            elif isinstance(value, dict):
                yield from _search(value, name, zone, depth + 1)


def _by_key(node: Mapping[str, Any], symbol: str | None, zone: str | None) -> Iterator[Found]:
    """Rows under their stamps or numbers; or one row a symbol."""
    counted = list(node) == [str(number) for number in range(len(node))]
    dated = any(plain(key) in STAMPS for row in node.values() for key in row)
    if counted or (not dated and all(map(NUMBERED.fullmatch, node))):
        yield Found([{INDEX: stamp, **row} for stamp, row in node.items()], (), symbol, zone)
    else:
        for name, row in node.items():
            yield Found([row], (), name, zone)


def _columns(node: Mapping[str, Any], symbol: str | None, zone: str | None) -> Iterator[Found]:
    """Columns as lists of one length, or as values by stamp."""
    lists = {key: value for key, value in node.items() if isinstance(value, list)}
    if lists:
        size = max(map(len, lists.values()))
        equal = {key: value for key, value in lists.items() if len(value) == size}
        rows = [list(row) for row in zip(*equal.values(), strict=True)]
        yield Found(rows, tuple(equal), symbol, zone)
        return
    maps = {key: value for key, value in node.items() if isinstance(value, dict)}
    stamps = list(dict.fromkeys(stamp for value in maps.values() for stamp in value))
    rows = [[stamp, *(value.get(stamp) for value in maps.values())] for stamp in stamps]
    yield Found(rows, (INDEX, *maps), symbol, zone)


def _price_keys(node: Mapping[str, Any]) -> list[str]:
    """The keys of open, high, low and close, as far as they are there."""
    return _prices_among(tuple(node)) if len(node) <= FEW_KEYS else []


@lru_cache(maxsize=256)  # the rows of a file have the same keys
def _prices_among(keys: tuple[str, ...]) -> list[str]:
    plains = {plain(key): key for key in keys}
    return [plains[hit] for words in ROLES.values() if (hit := next((word for word in words if word in plains), ""))]


def _said(node: Mapping[str, Any], words: Sequence[str]) -> str | None:
    """What `node`, or an object of particulars inside it, says under one of `words`."""
    inner = [value for key, value in node.items() if isinstance(value, dict) and plain(key) in ("meta", "metadata")]
    for place in (node, *inner):
        for key, value in place.items():
            if plain(key) in words and isinstance(value, str) and value.strip():
                return value.strip()
    return None


def _complaints(node: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    for key, value in node.items():
        if plain(key) in COMPLAINTS and isinstance(value, str) and value.strip():
            yield value.strip()
        elif isinstance(value, dict) and depth < DEEP:
            yield from _complaints(value, depth + 1)
        elif plain(key) in COMPLAINTS and isinstance(value, list) and value:
            yield str(value[0])
