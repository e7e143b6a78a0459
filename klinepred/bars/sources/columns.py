"""In: the column names of a file. Out: `Layout`, which column plays which part; or an error naming what is missing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klinepred.errors import SourceError


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Names as `plain` leaves them: lower case, letters and digits only. The first that a file has is taken.
STAMPS: Final = _words(
    "ts tsevent timestamp timestamps datetime datetimeutc opentime windowstart candlebegintime barstart starttime "
    "localtime gmttime tradetime 交易时间 时间 date time t unix unixtimestamp epoch datum 日期 day unnamed0 indexlevel0"
)
DATES: Final = _words("date day datum tradedate dtyyyymmdd 日期")
TIMES: Final = _words("time timeofday zeit uhrzeit 时间")
ROLES: Final[Mapping[str, Sequence[str]]] = {
    "open": _words("open o opn op openprice first eröffnung 开盘 开盘价"),
    "high": _words("high h hi highprice max hoch 最高 最高价"),
    "low": _words("low l lo lowprice min tief 最低 最低价"),
    "close": _words("close c cls closeprice last closelast schluss 收盘 收盘价"),
}
VOLUMES: Final = _words("volume vol v volumen basevolume totalvolume tickvol tickvolume 成交量 quantity qty count")
SYMBOLS: Final = _words(
    "symbol ticker tickers sym instrument code stockcode tic pair contract 代码 股票代码 证券代码 tscode instrumentid"
)


@dataclass(frozen=True)
class Layout:
    """Names of the columns of a file by the part they play.

    Attributes
    ----------
    stamp, time
        Column of the stamp; with `time` given, `stamp` holds the day and `time` the time of day.
    volumes
        Candidates in order; the first that is not zero throughout counts. Empty where the file has none, which only
        a vendor without volume may have.
    symbol
        None where the file has no such column.
    """

    stamp: str
    time: str | None
    open: str
    high: str
    low: str
    close: str
    volumes: tuple[str, ...]
    symbol: str | None

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns that must hold numbers."""
        return (self.open, self.high, self.low, self.close, *self.volumes)

    @property
    def parts(self) -> dict[str, str]:
        """Column by part, except the volume, which is chosen from several."""
        parts = {"stamp": self.stamp, "time": self.time, "symbol": self.symbol}
        parts |= {name: getattr(self, name) for name in ROLES}
        return {part: name for part, name in parts.items() if name}

    @property
    def used(self) -> tuple[str, ...]:
        """All columns that are read, each once."""
        texts = [name for name in (self.stamp, self.time, self.symbol) if name is not None]
        return tuple(dict.fromkeys([*texts, *self.numbers]))


def plain(name: str) -> str:
    """`<TICKVOL>`, ` open`, `1. open`, `Open_Time` to `tickvol`, `open`, `open`, `opentime`."""
    bare = re.sub(r"^\s*\d+\.\s*", "", name.strip().lower())
    return "".join(char for char in bare if char.isalnum())


def find_layout(names: Sequence[str], *, where: str, sample: Mapping[str, Sequence[str]]) -> Layout:
    """Give each part its column, by name in any order and case.

    Parameters
    ----------
    names
        Column names as the file writes them, unique.
    where
        The file, for messages.
    sample
        First values of each column as text, to tell a day from a whole stamp.

    Raises
    ------
    SourceError
        A column other than the volume is missing, or one is there twice; the nearest names are given.
    """
    by_plain: dict[str, list[str]] = {}
    for name in names:
        by_plain.setdefault(plain(name), []).append(name)

    def find(wanted: Sequence[str], part: str) -> str | None:
        for word in wanted:
            have = by_plain.get(word, [])
            if len(have) > 1:
                raise SourceError(
                    where,
                    expected=f"one column for {part}",
                    got=f"{len(have)} of one name: {', '.join(map(repr, have))}",
                    do="rename or remove the one that is not meant",
                )
            if have:
                return have[0]
        return None

    stamp, time = find(STAMPS, "the time stamp"), None
    if stamp is None and names and not names[0].strip():
        stamp = names[0]  # the nameless index column that pandas writes
    day, clock = find(DATES, "the day"), find(TIMES, "the time of day")
    if day is not None and clock is not None and stamp in (day, clock):
        if _is_time(sample.get(clock, ())):
            stamp, time = day, clock
        else:  # one of them holds the whole stamp
            stamp = day if any(":" in text for text in sample.get(day, ())) else clock
    parts = {part: find(words, part) for part, words in ROLES.items()}
    volumes = tuple(name for word in VOLUMES for name in by_plain.get(word, [])[:1])
    missing = [part for part, name in {"time stamp": stamp, **parts}.items() if name is None]
    if missing:
        raise missing_columns(missing if volumes else [*missing, "volume"], names, where)
    return Layout(
        stamp=str(stamp),
        time=time,
        open=str(parts["open"]),
        high=str(parts["high"]),
        low=str(parts["low"]),
        close=str(parts["close"]),
        volumes=volumes,
        symbol=find(SYMBOLS, "the symbol"),
    )


def _is_time(texts: Sequence[str]) -> bool:
    seen = [text.strip() for text in texts if text.strip()]
    return bool(seen) and all(re.fullmatch(r"\d{1,2}:\d{1,2}(:\d{1,2}(\.\d+)?)?|\d{1,6}", text) for text in seen)


def missing_columns(missing: Sequence[str], names: Sequence[str], where: str) -> SourceError:
    """The error that names the parts without a column, and the columns that may be meant."""
    words = {"time stamp": STAMPS[:16], "volume": VOLUMES, **ROLES}
    plains = {plain(name): name for name in names}
    hints = []
    for part in missing:
        near = difflib.get_close_matches(words[part][0] if part != "time stamp" else "datetime", plains, n=1)
        near = near or [
            hit for word in words[part] for hit in difflib.get_close_matches(word, plains, n=1, cutoff=0.75)
        ]
        if near:
            hints.append(f"is {plains[near[0]]!r} meant to be {part}?")
    return SourceError(
        f"{where}: no column for {', '.join(missing)}",
        expected="columns for a time stamp, open, high, low, close and volume, in any order",
        got=", ".join(map(repr, names[:20])) + (" …" if len(names) > 20 else ""),
        do=" ".join(hints) or "name the columns so in the first line of the file",
    )
