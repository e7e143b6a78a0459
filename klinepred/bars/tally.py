"""In: what each delivery did to each symbol. Out: one `SymbolReport` per symbol over the whole ingest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np
import polars as pl

from klinepred.bars.clean import LISTED, OUTSIDE
from klinepred.bars.delivery import Failure, Status
from klinepred.bars.report import Quarantined, SymbolReport
from klinepred.bars.rescale import Rescaled

COUNTS: Final = ("received", "duplicates", "empty", "held", "zero_volume", "new", "revised", "unchanged")
NO_SYMBOL: Final = "(no symbol)"


@dataclass
class _Symbol:
    """Running sums of one symbol; `runs` are the stretches of neighbouring good slots, [first, last] each."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    quarantined: list[Quarantined] = field(default_factory=list)
    runs: list[np.ndarray] = field(default_factory=list)
    span: tuple[int, int] | None = None
    first_ts: datetime | None = None
    last_ts: datetime | None = None
    empty_ts: list[datetime] = field(default_factory=list)
    held_ts: list[datetime] = field(default_factory=list)
    rescaled: Rescaled | None = None
    notes: list[str] = field(default_factory=list)
    failure: Failure | None = None


class Tally:
    """Adds up deliveries; memory grows with symbols, gaps and quarantined rows, not with bars."""

    def __init__(self) -> None:
        self._symbols: dict[str, _Symbol] = {}
        self._stored: dict[str, np.ndarray] = {}

    def add_counts(self, counts: pl.DataFrame) -> None:
        """Columns `symbol` and any of the counts, `first_slot`, `last_slot`, `empty_ts`, `held_ts`; one row each."""
        given = [name for name in COUNTS if name in counts.columns]
        for row in counts.iter_rows(named=True):
            here = self._of(row["symbol"])
            for name in given:
                here.counts[name] += int(row[name] or 0)
            here.empty_ts = _first(here.empty_ts, row.get("empty_ts"))
            here.held_ts = _first(here.held_ts, row.get("held_ts"))
            if row.get("first_slot") is not None:
                low, high = here.span or (row["first_slot"], row["last_slot"])
                here.span = (min(low, row["first_slot"]), max(high, row["last_slot"]))

    def add_bars(self, bars: pl.DataFrame) -> None:
        """Good bars: symbol, ts, slot; sorted by symbol and ts."""
        fresh = (
            (pl.col("symbol") != pl.col("symbol").shift(1)) | (pl.col("slot") != pl.col("slot").shift(1) + 1)
        ).fill_null(True)
        edges = (
            bars.lazy()
            .select("symbol", "ts", "slot", opens=fresh, ends=fresh.shift(-1, fill_value=True))
            .filter(pl.col("opens") | pl.col("ends"))
            .collect()
        )
        runs = edges.filter("opens").select("symbol", first="slot", low="ts")
        runs = runs.hstack(edges.filter("ends").select(last="slot", high="ts"))
        table, lows, highs = runs.select("first", "last").to_numpy(), runs["low"].to_list(), runs["high"].to_list()
        at = 0
        for symbol, size in runs.get_column("symbol").rle().struct.unnest().select("value", "len").iter_rows():
            here = self._of(symbol)
            here.runs.append(table[at : at + size])
            low, high = lows[at], highs[at + size - 1]
            here.first_ts = low if here.first_ts is None else min(here.first_ts, low)
            here.last_ts = high if here.last_ts is None else max(here.last_ts, high)
            at += size

    def add_stored(self, symbol: str, slots: pl.DataFrame) -> None:
        """Stretches of slots (`first`, `last`) that were not asked for since they are stored: they are not missing."""
        self._stored[symbol] = slots.select("first", "last").to_numpy()

    def add_rejects(self, rejects: pl.DataFrame) -> None:
        """Rows set aside: symbol, ts, reason."""
        for symbol, ts, reason in rejects.select("symbol", "ts", "reason").iter_rows():
            self._of(symbol).quarantined.append(Quarantined(ts, reason))

    def add_failure(self, symbol: str, failure: Failure) -> None:
        """The first failure of a symbol stands; that one file of several has no row of it counts least."""
        here = self._of(symbol)
        if here.failure is None or here.failure.status == "unknown-symbol":
            here.failure = failure

    def add_rescaled(self, record: Rescaled) -> None:
        """Stored bars of a symbol that were brought to another basis."""
        here = self._of(record.symbol)
        here.rescaled = record
        here.notes.append(record.words)

    def add_note(self, symbol: str, note: str) -> None:
        """A line for the message of `symbol`."""
        self._of(symbol).notes.append(note)

    def taken(self, symbol: str) -> int:
        """Bars of `symbol` that this ingest has stored so far."""
        here = self._symbols.get(symbol)
        return 0 if here is None else here.counts["new"] + here.counts["revised"]

    def reports(self) -> tuple[SymbolReport, ...]:
        """One report per symbol, sorted by name."""
        none = np.empty((0, 2), np.int64)
        return tuple(_report(name, self._symbols[name], self._stored.get(name, none)) for name in sorted(self._symbols))

    def _of(self, symbol: str | None) -> _Symbol:
        return self._symbols.setdefault(NO_SYMBOL if symbol is None else symbol, _Symbol())


def _first(have: list[datetime], more: list[datetime] | None) -> list[datetime]:
    """The first `LISTED` of all stamps."""
    return sorted({*have, *more})[:LISTED] if more else have


def _report(name: str, here: _Symbol, stored: np.ndarray) -> SymbolReport:
    status, lead = _status(here)
    expected = here.span[1] - here.span[0] + 1 if here.span else None
    count = here.counts
    notes = [lead] if lead else []
    outside = sum(row.reason == OUTSIDE for row in here.quarantined)
    if outside * 2 > count["received"]:
        notes.append(
            f"{outside:,} of {count['received']:,} rows lie outside the sessions: check --calendar, --hours, --tz"
        )
    if count["held"]:
        notes.append(f"{count['held']:,} unfinished, held back, from {here.held_ts[0]:%Y-%m-%d %H:%MZ}")
    if count["empty"]:
        at = f", first {here.empty_ts[0]:%Y-%m-%d %H:%MZ}" if here.empty_ts else ""
        notes.append(f"without prices, counted as missing: {count['empty']:,}{at}")
    notes += here.notes
    return SymbolReport(
        symbol=name,
        status=status,
        **count,
        quarantined=tuple(here.quarantined),
        empty_ts=tuple(here.empty_ts),
        held_ts=tuple(here.held_ts),
        rescaled=here.rescaled,
        expected=expected,
        missing=None if expected is None else expected - _covered([*here.runs, _inside(stored, here.span)]),
        first_ts=here.first_ts,
        last_ts=here.last_ts,
        message="; ".join(notes),
    )


def _status(here: _Symbol) -> tuple[Status, str]:
    # that one file of several has no row of a symbol is no failure where another had some
    if here.failure is not None and not (here.failure.status == "unknown-symbol" and here.counts["received"]):
        return here.failure.status, here.failure.message
    if here.counts["new"] or here.counts["revised"]:
        return "ok", ""
    if here.counts["unchanged"] or here.counts["held"]:
        return "unchanged", ""
    if here.quarantined:
        return "rejected", f"no row could be stored: {here.quarantined[0].reason}"
    return "failed", "the source gave no row with prices"


def _inside(stored: np.ndarray, span: tuple[int, int] | None) -> np.ndarray:
    """The parts of stretches [first, last] that lie in `span`."""
    if span is None:
        return stored[:0]
    parts: np.ndarray = np.clip(stored, *span)
    return parts[(stored[:, 1] >= span[0]) & (stored[:, 0] <= span[1])]


def _covered(runs: Iterable[np.ndarray]) -> int:
    """Number of distinct slots in stretches [first, last] that may overlap."""
    parts = list(runs)
    if not parts:
        return 0
    table = np.concatenate(parts)
    table = table[np.argsort(table[:, 0], kind="stable")]
    reach = np.maximum.accumulate(table[:, 1])
    start = table[:, 0].copy()
    start[1:] = np.maximum(start[1:], reach[:-1] + 1)
    return int(np.maximum(table[:, 1] - start + 1, 0).sum())
