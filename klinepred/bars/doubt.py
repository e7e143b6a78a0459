"""In: received bars whose closes are not those stored. Out: the same, held until all of a symbol's bars have come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl

from klinepred.bars.basis import CHANGE, Edge


@dataclass
class Doubt:
    """Symbols of one ingest that may be of another basis than the stored ones, or another instrument.

    One file or month can look like revisions where the whole is plainly something else, so nothing of a doubtful
    symbol is stored before its last bar has come; one that was refused once is refused for the rest of the ingest.
    Memory grows with the rows held: those of symbols whose closes changed, until there is enough to refuse them.

    Attributes
    ----------
    even
        By symbol, the first and last bars of each part of the ingest that came with the stored closes.
    """

    refused: set[str] = field(default_factory=set)
    even: dict[str, list[Edge]] = field(default_factory=dict)
    _held: dict[str, list[tuple[pl.DataFrame, str]]] = field(default_factory=dict)

    def hold(self, good: pl.DataFrame, symbols: set[str], *, source: str) -> None:
        """Keep the rows of `symbols`."""
        for (name,), part in good.filter(pl.col("symbol").is_in(list(symbols))).group_by("symbol"):
            self._held.setdefault(str(name), []).append((part, source))

    def refuse(self, symbol: str) -> None:
        """Let go of what was held of `symbol`, for good."""
        self.refused.add(symbol)
        self._held.pop(symbol, None)

    def held(self) -> set[str]:
        """Symbols with rows held."""
        return set(self._held)

    def note_even(self, common: pl.DataFrame) -> None:
        """Remember where received bars had the closes stored; columns as `measure` takes them."""
        equal = common.filter((pl.col("close") / pl.col("_close") - 1.0).abs() <= CHANGE).sort("ts")
        ends = pl.concat([equal.group_by("symbol").first(), equal.group_by("symbol").last()]).unique()
        for symbol, ts, close in ends.select("symbol", "ts", "_close").iter_rows():
            self.even.setdefault(symbol, []).append(Edge(ts, close))

    def release(self) -> Iterator[tuple[pl.DataFrame, int, str]]:
        """Of each symbol all rows (what came later counts), how many stamps came again, and the sources."""
        for name in sorted(self._held):
            parts = self._held.pop(name)
            whole = pl.concat([part for part, _ in parts])
            once = whole.unique(["symbol", "ts"], keep="last", maintain_order=True).sort("ts")
            yield once, whole.height - once.height, "; ".join(dict.fromkeys(source for _, source in parts))
