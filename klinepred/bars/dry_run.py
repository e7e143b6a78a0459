"""In: the settings of an ingest from files. Out: what would be read from each, and how; nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

import polars as pl

from klinepred.bars.batches import within
from klinepred.bars.clean import clean
from klinepred.bars.delivery import Delivery, Failure, Understood
from klinepred.bars.supply import deliveries
from klinepred.calendar import Clock, segments
from klinepred.errors import UsageError
from klinepred.schema import BAR_SCHEMA
from klinepred.settings import DataSettings

SHOWN: Final = 3
"""So many bars of each file are shown."""


@dataclass(frozen=True)
class Reading:
    """What an ingest would take from one file.

    Attributes
    ----------
    name
        Of the file.
    how
        How it was read; None where it could not be.
    symbols
        Those that have bars.
    counts
        `bars` that could be stored, `held_back`, `duplicates`, `empty`.
    quarantined
        Rows that would be set aside, by reason.
    first
        The first `SHOWN` bars, `BAR_SCHEMA`.
    """

    name: str
    how: Understood | None
    symbols: tuple[str, ...]
    counts: Mapping[str, int]
    quarantined: Mapping[str, int]
    first_ts: datetime | None
    last_ts: datetime | None
    first: pl.DataFrame
    remarks: tuple[str, ...]
    failures: Mapping[str, Failure]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        how = self.how
        return {
            "file": self.name,
            "form": how.form if how else None,
            "vendor": (how.vendor or None) if how else None,
            "columns": dict(how.columns) if how else {},
            "zone": how.zone if how else None,
            "stamp": how.stamp if how else None,
            "spacing": dict(how.spacing) if how else {},
            "symbols": list(self.symbols),
            "rows": how.rows if how else 0,
            **self.counts,
            "quarantined": dict(self.quarantined),
            "first_ts": self.first_ts,
            "last_ts": self.last_ts,
            "first_bars": self.first.to_dicts(),
            "remarks": list(self.remarks),
            "failures": {
                name: {"status": failure.status, "message": failure.message} for name, failure in self.failures.items()
            },
        }


@dataclass(frozen=True)
class DryRun:
    """The readings of all files, in the order they would be taken in."""

    files: tuple[Reading, ...]

    @property
    def exit_code(self) -> Literal[0, 1, 3]:
        """As the ingest: 0 = every file gives bars and nothing is refused, 1 = none gives any, 3 = else."""
        if not any(file.counts["bars"] or file.counts["held_back"] for file in self.files):
            return 1
        return 3 if any(file.failures for file in self.files) else 0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"stored": False, "files": [file.to_dict() for file in self.files]}


def dry_run(data: DataSettings, *, now: datetime | None = None) -> DryRun:
    """Read files as `ingest` does, up to the store, which is neither written nor looked at.

    So what only the store tells (bars stored already, another calendar, a split against stored prices) stays open.

    Parameters
    ----------
    now
        The clock (aware); None = the real one.

    Raises
    ------
    UsageError
        The source is not files; a path does not exist.
    SourceError
        The only file is unreadable.
    """
    if data.source != "files":
        raise UsageError(
            "--dry-run",
            expected="files: it shows how they are read",
            got=f"source = {data.source}, which has one form only",
            do="pass paths, or leave --dry-run away",
        )
    clock = Clock(data.calendar, data.hours)
    segments(clock)
    at = datetime.now(UTC) if now is None else now.astimezone(UTC)
    return DryRun(tuple(_reading(delivery, data, clock, at) for delivery in deliveries(data, clock, at)))


def _reading(delivery: Delivery, data: DataSettings, clock: Clock, now: datetime) -> Reading:
    cleaned = clean(within(delivery.frame, data.start, data.end, clock), clock=clock, now=now)
    bars, counts = cleaned.bars, cleaned.counts
    bad = cleaned.rejects if delivery.rejects is None else pl.concat([cleaned.rejects, delivery.rejects])
    reasons = bad.group_by("reason").len().sort("len", "reason", descending=[True, False])
    return Reading(
        name=delivery.understood.file if delivery.understood else next(iter(delivery.failures), delivery.source),
        how=delivery.understood,
        symbols=tuple(bars.get_column("symbol").unique().sort()),
        counts={
            "bars": bars.height,
            **{
                name: int(counts.get_column(column).sum() or 0)
                for name, column in (("held_back", "held"), ("duplicates", "duplicates"), ("empty", "empty"))
            },
        },
        quarantined=dict(reasons.iter_rows()),
        first_ts=bars.select(pl.col("ts").min()).item(),
        last_ts=bars.select(pl.col("ts").max()).item(),
        first=bars.head(SHOWN).select(*BAR_SCHEMA),
        remarks=delivery.remarks,
        failures=delivery.failures,
    )
