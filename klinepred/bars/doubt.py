"""In: received bars whose closes are not those stored. Out: the same, held until all of a symbol's bars have come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import polars as pl

from klinepred.bars.together import Stretch


@dataclass(frozen=True)
class Held:
    """What was held of one symbol.

    Attributes
    ----------
    parts
        As they came.
    once
        Each stamp once: what came later counts.
    again
        How many stamps came again.
    source
        Where they are from.
    """

    symbol: str
    parts: Sequence[pl.DataFrame]
    once: pl.DataFrame
    again: int
    source: str


@dataclass
class Doubt:
    """Symbols of one ingest that may be of another basis than the stored ones, or another instrument.

    One file or month can look like revisions where the whole is plainly something else, so nothing of a doubtful
    symbol is stored before its last bar has come; one that was refused once is refused for the rest of the ingest.
    Memory grows with the rows held: those of symbols whose closes changed, until there is enough to refuse them.

    Attributes
    ----------
    stretches
        By symbol, where each part of the ingest lies that is stored already.
    """

    refused: set[str] = field(default_factory=set)
    stretches: dict[str, list[Stretch]] = field(default_factory=dict)
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

    def note_stored(self, compared: pl.DataFrame) -> None:
        """Remember where bars came that were stored at once; columns as `compare` gives them."""
        ends = compared.group_by("symbol").agg(
            first=pl.col("ts").min(), last=pl.col("ts").max(), touched=pl.col("_close").is_not_null().any()
        )
        for symbol, *ends_of in ends.iter_rows():
            self.stretches.setdefault(symbol, []).append(Stretch(*ends_of))

    def release(self) -> Iterator[Held]:
        """What was held of each symbol."""
        for name in sorted(self._held):
            parts = self._held.pop(name)
            frames, sources = [part for part, _ in parts], dict.fromkeys(source for _, source in parts)
            whole = pl.concat(frames)
            once = whole.unique(["symbol", "ts"], keep="last", maintain_order=True).sort("ts")
            yield Held(name, frames, once, whole.height - once.height, "; ".join(sources))
