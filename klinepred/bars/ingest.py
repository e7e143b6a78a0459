"""In: the data settings of a pipeline, a workspace. Out: bars in its store, and a report of what became of each row."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import polars as pl

from klinepred.bars.batches import batches, within
from klinepred.bars.clean import clean
from klinepred.bars.compaction import compact_after
from klinepred.bars.delivery import Delivery
from klinepred.bars.desk import Desk, settle
from klinepred.bars.doubt import Doubt
from klinepred.bars.hours import ALWAYS_OPEN, Hours
from klinepred.bars.lock import WAIT_S, writer
from klinepred.bars.release import settle_held
from klinepred.bars.remarks import Remarks
from klinepred.bars.report import IngestReport
from klinepred.bars.steps import in_lines, still_there
from klinepred.bars.store import latest_version, store_version
from klinepred.bars.supply import are_many_parts, deliveries
from klinepred.bars.tally import Tally
from klinepred.calendar import Clock, segments, zone_of
from klinepred.errors import SourceError
from klinepred.paths import Workspace
from klinepred.settings import DataSettings

log = logging.getLogger("klinepred.bars")

BATCH_ROWS: Final = 2_000_000
"""A delivery of more rows is committed symbol group by symbol group, so that memory stays bounded."""
TALK_EVERY_S: Final = 3.0


def ingest(
    data: DataSettings, space: Workspace, *, now: datetime | None = None, wait_s: float = WAIT_S
) -> IngestReport:
    """Take bars in from the source that `data` names; each delivery is one atomic commit, a huge one a few.

    A bar already stored with equal values is unchanged, with other values revised; one that is stored but did not
    come this time stays. Nothing is filled. What cannot be a bar goes to the quarantine with its reason.

    Parameters
    ----------
    now
        The clock (aware); bars not finished by then are held back. None = the real one.
    wait_s
        How long to wait for another ingest that holds the store, seconds.

    Raises
    ------
    UsageError
        A path does not exist; no symbols or no paths to take in; a calendar nobody knows.
    SourceError
        The only file is unreadable, the source gave not a single row, or it cannot be reached at all.
    StoreError
        The store cannot be written, or is held by another process.
    """
    clock = Clock(data.calendar, data.hours)
    segments(clock)
    if data.source == "files" and data.tz is not None:
        zone_of(data.tz)
    at = datetime.now(UTC) if now is None else now.astimezone(UTC)
    tally = Tally()
    report = take_in(
        deliveries(data, clock, at, space=space, tally=tally), data, space, now=at, tally=tally, wait_s=wait_s
    )
    if not report.changed:
        return report
    compact_after(space, wait_s=wait_s)
    return replace(report, version=store_version(space))


def take_in(
    arriving: Iterable[Delivery],
    data: DataSettings,
    space: Workspace,
    *,
    now: datetime,
    tally: Tally,
    wait_s: float = WAIT_S,
) -> IngestReport:
    """What `ingest` does with what its source gives; the files of the store are not compacted.

    Parameters
    ----------
    arriving
        What came, by the calendar and hours of `data`.
    tally
        What is known of the symbols already.

    Raises
    ------
    SourceError, StoreError
        As `ingest`.
    """
    doubt = Doubt() if are_many_parts(data) else None
    clock, before = Clock(data.calendar, data.hours), latest_version(space)
    desk = Desk(space, clock, tally, Remarks(), doubt, before=before, permit=data.rescale)
    hours = Hours()
    told = time.monotonic()
    stored = 0
    for delivery in arriving:
        for line in delivery.remarks:
            desk.remarks.say(line)
        for symbol, failure in delivery.failures.items():
            tally.add_failure(symbol, failure)
        stored += _take(delivery, data, desk, hours, now=now, wait_s=wait_s)
        if time.monotonic() - told > TALK_EVERY_S:
            told = time.monotonic()
            log.info("… %s bars stored so far, now from %s", f"{stored:,}", delivery.source)
    for held in doubt.release() if doubt else ():
        tally.add_counts(held.once.head(1).select("symbol", duplicates=pl.lit(held.again)))
        with writer(space.data, wait_s=wait_s):
            settle_held(held, desk)
    reports = tally.reports()
    if not reports:
        raise _no_rows(data)
    for line in (*in_lines(still_there(space, desk.steps), asked=data.rescale == "always"), *hours.lines()):
        desk.remarks.say(line, loud=True)
    after = latest_version(space)
    return IngestReport(version=after, symbols=reports, remarks=desk.remarks.lines(), changed=after != before)


def _no_rows(data: DataSettings) -> SourceError:
    span = f" from {data.start or 'the first day'} to {data.end or 'the last'}" if data.start or data.end else ""
    return SourceError(
        f"ingest from {data.source}",
        expected=f"at least one row{span}",
        got="none",
        do="check --start and --end against what the source holds" if span else "check that the source is not empty",
    )


def _take(delivery: Delivery, data: DataSettings, desk: Desk, hours: Hours, *, now: datetime, wait_s: float) -> int:
    """Clean, compare and commit one delivery; returns the number of bars written."""
    frame, extra, clock, tally = delivery.frame, delivery.rejects, desk.clock, desk.tally
    if data.source == "files":
        frame = within(frame, data.start, data.end, clock)
    written = 0
    for part in batches(frame, limit=BATCH_ROWS):
        cleaned = clean(part, clock=clock, now=now)
        rejects = cleaned.rejects
        if extra is not None and extra.height:
            tally.add_counts(extra.group_by("symbol").agg(received=pl.len()))
            rejects, extra = pl.concat([rejects, extra.select(rejects.columns)]).sort("symbol", "ts", "reason"), None
        tally.add_counts(cleaned.counts)
        tally.add_rejects(rejects)
        if clock.calendar == ALWAYS_OPEN:
            hours.see(cleaned.bars)
        with writer(desk.space.data, wait_s=wait_s):
            written += settle(cleaned.bars, rejects, source=delivery.source, desk=desk, splits=delivery.splits)
    return written
