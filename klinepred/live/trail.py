"""In: bars as they come. Out: the last bars of each symbol, in memory that does not grow."""

# Shapes: S symbols, N of them, K bars that are kept.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from klinepred.features.newest import CODE
from klinepred.schema import TS, VALUES

Ints = npt.NDArray[np.int64]

DTYPES: Final[dict[str, Any]] = {
    "ts": np.int64,
    **dict.fromkeys(VALUES, np.float64),
    "session": np.int32,
    "bar": np.int32,
    "session_bars": np.int32,
    "slot": np.int64,
    "segment": np.int32,
    "_z": np.float64,
    "_z_12": np.float64,
}
"""What is kept of a bar: ts in microseconds, session in days since 1970, the two returns of the cross-section."""
PLACED: Final = ("ts", *VALUES, "session", "bar", "session_bars", "slot", "segment")


class Trail:
    """A row of room for each symbol, filled from the left; a full one keeps its last K bars and goes on.

    Attributes
    ----------
    end
        By symbol, where its next bar goes; `first`: where its oldest one is.
    """

    def __init__(self, symbols: int, *, keep: int) -> None:
        self.keep, self.room = keep, keep + max(256, keep // 4)
        self.end = np.zeros(symbols, dtype=np.int64)
        self.first = np.zeros(symbols, dtype=np.int64)
        self._arrays = {name: np.zeros((symbols, self.room), dtype) for name, dtype in DTYPES.items()}

    def fill(self, code: int, rows: Mapping[str, np.ndarray]) -> None:
        """All there is of one symbol, at most K bars."""
        size = len(rows["ts"])
        for name, values in rows.items():
            self._arrays[name][code, :size] = values
        self.first[code], self.end[code] = 0, size

    def push(self, codes: Ints, rows: Mapping[str, np.ndarray]) -> None:
        """One bar more of each of some symbols."""
        full = codes[self.end[codes] == self.room]
        if full.size:
            for array in self._arrays.values():
                array[full, : self.keep] = array[full, self.room - self.keep :]
            self.first[full], self.end[full] = 0, self.keep
        for name, values in rows.items():
            self._arrays[name][codes, self.end[codes]] = values
        self.end[codes] += 1
        self.first[codes] = np.maximum(self.first[codes], self.end[codes] - self.keep)

    def amend(self, codes: Ints, rows: Mapping[str, np.ndarray]) -> None:
        """Values of the newest bars."""
        for name, values in rows.items():
            self._arrays[name][codes, self.end[codes] - 1] = values

    def newest(self, name: str, codes: Ints) -> np.ndarray:
        """[N] of the newest bars; each of `codes` has one."""
        return np.asarray(self._arrays[name][codes, self.end[codes] - 1])

    def counts(self, codes: Ints) -> Ints:
        """[N] bars that are kept."""
        return np.asarray(self.end[codes] - self.first[codes])

    def spots(self, codes: Ints, bars: int) -> Ints:
        """Places of the last `bars` bars of each, or of as many as there are, by code and time."""
        sizes = np.minimum(bars, self.counts(codes))
        start = codes * self.room + self.end[codes] - sizes
        total = int(sizes.sum())
        within = np.arange(total) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.asarray(np.repeat(start, sizes) + within)

    def since(self, ts: int, *, at_least: int) -> Ints:
        """Places of all symbols' bars from `ts` on, by code and time; found fastest where there are `at_least`."""
        codes = np.flatnonzero(self.end > self.first)
        bars = at_least
        while True:
            oldest = np.maximum(self.first[codes], self.end[codes] - bars)
            done = (oldest == self.first[codes]) | (self._arrays["ts"][codes, oldest] < ts)
            if done.all():
                break
            bars *= 2
        spots: Ints = self.spots(codes, bars)
        return np.asarray(spots[self.take("ts", spots) >= ts])

    def take(self, name: str, spots: Ints) -> np.ndarray:
        """Values at places."""
        return np.asarray(self._arrays[name].reshape(-1)[spots])

    def frame(self, spots: Ints, names: tuple[str, ...]) -> pl.DataFrame:
        """`CODE` and columns at places; ts and session as dates and times, what is not a number as null."""
        columns = [pl.Series(CODE, (spots // self.room).astype(np.int32))]
        for name in names:
            column = pl.Series(name, self.take(name, spots))
            if name == "ts":
                column = column.cast(pl.Datetime("us")).dt.replace_time_zone("UTC").cast(TS)
            elif name == "session":
                column = column.cast(pl.Date)
            elif name.startswith("_"):
                column = column.fill_nan(None)
            columns.append(column)
        return pl.DataFrame(columns)

    def seasonal(self, codes: Ints, bars: int) -> Ints:
        """Of `spots` those of the newest bar's place in its session, and those that begin a session."""
        spots = self.spots(codes, bars)
        code, session = spots // self.room, self.take("session", spots)
        begins = np.ones(spots.size, dtype=bool)
        begins[1:] = (session[1:] != session[:-1]) | (code[1:] != code[:-1])
        place = np.zeros(self.end.size, dtype=np.int32)
        place[codes] = self.newest("bar", codes)
        return np.asarray(spots[begins | (self.take("bar", spots) == place[code])])

    def edges(self, codes: Ints, bars: int, *, last: int) -> Ints:
        """Of `spots` those that begin or end a stretch of trading, and the last ones of each symbol."""
        spots = self.spots(codes, bars)
        code, segment = spots // self.room, self.take("segment", spots)
        changes = np.ones(spots.size + 1, dtype=bool)
        changes[1:-1] = (segment[1:] != segment[:-1]) | (code[1:] != code[:-1])
        late = spots % self.room >= self.end[code] - last
        return np.asarray(spots[changes[:-1] | changes[1:] | late])
