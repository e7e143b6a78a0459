"""In: bars and failures of one symbol after the other. Out: `Delivery` objects, each as much as makes one commit."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from klinepred.bars.delivery import Delivery, Failure
from klinepred.schema import BAR_SCHEMA

SYMBOLS: Final = 32
"""Symbols of one delivery, and so of one commit, at most."""
ROWS: Final = 200_000
"""No more bars are collected once a delivery has so many."""
SECONDS: Final = 30.0
"""Nor after so long: a process that is killed loses no more than this of its work."""


@dataclass
class Batch:
    """What makes up the next delivery; `source` is the provenance of all of them."""

    source: str
    _frames: list[pl.DataFrame] = field(default_factory=list)
    _splits: list[pl.DataFrame] = field(default_factory=list)
    _failures: dict[str, Failure] = field(default_factory=dict)
    _remarks: dict[str, None] = field(default_factory=dict)
    _symbols: dict[str, None] = field(default_factory=dict)
    _rows: int = 0
    _began: float = field(default_factory=time.monotonic)

    def add(
        self, symbol: str, frame: pl.DataFrame, *, splits: pl.DataFrame | None = None, remarks: Iterable[str] = ()
    ) -> None:
        """Bars of `symbol`, and the splits that the source tells of."""
        self.note(symbol, remarks)
        self._frames.append(frame)
        if splits is not None and splits.height:
            self._splits.append(splits)
        self._rows += frame.height

    def fail(self, symbol: str, failure: Failure, *, remarks: Iterable[str] = ()) -> None:
        """`symbol` came with no bars, or with no more."""
        self.note(symbol, remarks)
        self._failures.setdefault(symbol, failure)

    def full(self) -> bool:
        """Whether it should be delivered now."""
        late = time.monotonic() - self._began >= SECONDS
        return bool(self._symbols) and (len(self._symbols) >= SYMBOLS or self._rows >= ROWS or late)

    def empty(self) -> bool:
        """Whether there is nothing to deliver."""
        return not self._symbols

    def deliver(self) -> Delivery:
        """Everything collected; the next delivery begins empty."""
        frame = pl.concat(self._frames) if self._frames else pl.DataFrame(schema=BAR_SCHEMA)
        delivery = Delivery(
            frame=frame,
            source=self.source,
            failures=dict(self._failures),
            remarks=tuple(self._remarks),
            splits=pl.concat(self._splits) if self._splits else None,
        )
        self._frames, self._splits, self._rows = [], [], 0
        self._failures, self._remarks, self._symbols = {}, {}, {}
        return delivery

    def note(self, symbol: str, remarks: Iterable[str]) -> None:
        """Lines for the user about `symbol`."""
        if not self._symbols:
            self._began = time.monotonic()
        self._symbols[symbol] = None
        self._remarks.update(dict.fromkeys(remarks))
