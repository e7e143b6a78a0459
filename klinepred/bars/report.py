"""In: what became of each symbol of an ingest. Out: `IngestReport`: exit code, JSON, rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

import polars as pl

from klinepred.bars.delivery import Status
from klinepred.bars.rescale import Rescaled
from klinepred.schema import TS

FAILED: Final[frozenset[Status]] = frozenset({"rate-limited", "unknown-symbol", "rejected", "failed"})


@dataclass(frozen=True)
class Quarantined:
    """One row set aside: the stamp it came with (None = unreadable) and why."""

    ts: datetime | None
    reason: str


@dataclass(frozen=True)
class SymbolReport:
    """What became of one symbol.

    Attributes
    ----------
    received
        Rows the source gave. Each is new, revised, unchanged, a duplicate, quarantined, empty or held back.
    expected, missing
        Bars the calendar expects from the first to the last finished row received, and those of them that did not
        come as a good bar. None where the symbol was refused or nothing came.
    first_ts, last_ts
        First and last good bar received (opens, UTC).
    empty_ts, held_ts
        The first stamps of rows without prices, and of unfinished ones; `LISTED` at most, `empty` and `held` count all.
    rescaled
        What was done to stored bars that were on another basis than those received.
    """

    symbol: str
    status: Status
    received: int = 0
    new: int = 0
    revised: int = 0
    unchanged: int = 0
    duplicates: int = 0
    empty: int = 0
    held: int = 0
    quarantined: tuple[Quarantined, ...] = ()
    expected: int | None = None
    missing: int | None = None
    zero_volume: int = 0
    first_ts: datetime | None = None
    last_ts: datetime | None = None
    message: str = ""
    empty_ts: tuple[datetime, ...] = ()
    held_ts: tuple[datetime, ...] = ()
    rescaled: Rescaled | None = None

    def reasons(self) -> Mapping[str, int]:
        """How many rows were quarantined for which reason, most frequent first."""
        count: dict[str, int] = {}
        for row in self.quarantined:
            count[row.reason] = count.get(row.reason, 0) + 1
        return dict(sorted(count.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class IngestReport:
    """What an ingest did.

    Attributes
    ----------
    version
        Version of the bars table after it; None where nothing was ever stored.
    symbols
        In the order of their names.
    remarks
        Lines for the user: what was assumed, clamped, left out.
    changed
        Whether it made a new version.
    """

    version: int | None
    symbols: tuple[SymbolReport, ...]
    remarks: tuple[str, ...] = field(default=())
    changed: bool = False

    @property
    def exit_code(self) -> Literal[0, 1, 3]:
        """0 = done, 3 = some symbols failed, 1 = all did, or there was none."""
        bad = sum(row.status in FAILED for row in self.symbols)
        return 0 if self.symbols and not bad else 1 if bad == len(self.symbols) else 3

    def to_dict(self) -> dict[str, Any]:
        """The JSON of the design page; stamps as 2026-06-10T13:30:00Z."""
        return {
            "version": self.version,
            "symbols": [
                {
                    "symbol": row.symbol,
                    "status": row.status,
                    "received": row.received,
                    "new": row.new,
                    "revised": row.revised,
                    "unchanged": row.unchanged,
                    "duplicates": row.duplicates,
                    "empty": row.empty,
                    "empty_ts": [_iso(ts) for ts in row.empty_ts],
                    "held_back": row.held,
                    "held_back_ts": [_iso(ts) for ts in row.held_ts],
                    "quarantined": [{"ts": _iso(bad.ts), "reason": bad.reason} for bad in row.quarantined],
                    "expected": row.expected,
                    "missing": row.missing,
                    "zero_volume": row.zero_volume,
                    "first_ts": _iso(row.first_ts),
                    "last_ts": _iso(row.last_ts),
                    "rescaled": row.rescaled.to_dict() if row.rescaled else None,
                    "message": row.message,
                }
                for row in self.symbols
            ],
            "remarks": list(self.remarks),
        }

    def to_frame(self) -> pl.DataFrame:
        """A row per symbol: symbol, status, new, revised, unchanged, quarantined, missing, zero_volume, first, last."""
        return pl.DataFrame(
            [
                (
                    row.symbol,
                    row.status,
                    row.new,
                    row.revised,
                    row.unchanged,
                    len(row.quarantined),
                    row.missing,
                    row.zero_volume,
                    row.first_ts,
                    row.last_ts,
                )
                for row in self.symbols
            ],
            schema={
                "symbol": pl.String,
                "status": pl.String,
                **dict.fromkeys(("new", "revised", "unchanged", "quarantined", "missing", "zero_volume"), pl.Int64),
                "first_ts": TS,
                "last_ts": TS,
            },
            orient="row",
        )

    def summary(self) -> str:
        """One line: what was stored, set aside, missing, and the version."""
        rows = self.symbols
        parts = [f"{sum(row.new for row in rows):,} new"]
        for name, count in (
            ("revised", sum(row.revised for row in rows)),
            ("unchanged", sum(row.unchanged for row in rows)),
            ("quarantined", sum(len(row.quarantined) for row in rows)),
            ("duplicates dropped", sum(row.duplicates for row in rows)),
            ("empty", sum(row.empty for row in rows)),
            ("held back", sum(row.held for row in rows)),
        ):
            if count:
                parts.append(f"{count:,} {name}")
        bad = sum(row.status in FAILED for row in rows)
        failed = f"; {bad} of {len(rows)} symbols failed" if bad else ""
        version = "nothing stored yet" if self.version is None else f"store version {self.version}"
        return f"{len(rows)} symbol{'s' * (len(rows) != 1)}: {', '.join(parts)}{failed}; {version}"


def _iso(stamp: datetime | None) -> str | None:
    return None if stamp is None else f"{stamp:%Y-%m-%dT%H:%M:%SZ}"
