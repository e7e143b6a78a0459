"""In: the data settings of a pipeline, a workspace. Out: bars in its store, and a report of what became of each row."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import polars as pl

from klinepred.bars.compaction import compact_after
from klinepred.bars.delivery import Delivery
from klinepred.bars.desk import Desk, settle
from klinepred.bars.doubt import Doubt
from klinepred.bars.hours import ALWAYS_OPEN, Hours
from klinepred.bars.lock import WAIT_S
from klinepred.bars.parcels import Parcel, parcels
from klinepred.bars.release import settle_held
from klinepred.bars.remarks import Remarks
from klinepred.bars.report import IngestReport
from klinepred.bars.steps import in_lines, still_there
from klinepred.bars.store import latest_version, store_version
from klinepred.bars.supply import are_many_parts, arrivals
from klinepred.bars.tally import Tally
from klinepred.bars.turn import store_writer
from klinepred.calendar import Clock, segments, zone_of
from klinepred.engine.engine import HERE, Engine
from klinepred.errors import SourceError
from klinepred.headway import stepwise
from klinepred.paths import Workspace
from klinepred.settings import DataSettings

if TYPE_CHECKING:
    from klinepred.bars.sources.files import Unread

log = logging.getLogger("klinepred.bars")

BATCH_ROWS: Final = 2_000_000
"""A delivery of more rows is committed symbol group by symbol group, so that memory stays bounded."""
TALK_EVERY_S: Final = 3.0


def ingest(
    data: DataSettings,
    space: Workspace,
    *,
    now: datetime | None = None,
    wait_s: float = WAIT_S,
    engine: Engine = HERE,
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
    engine
        Who reads and cleans: this process, one file after another, or many machines that all see the files. Stored is
        here, in the same order and the same commits.

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
    arriving = arrivals(data, clock, at, space=space, tally=tally)
    report = take_in(arriving, data, space, now=at, tally=tally, wait_s=wait_s, engine=engine)
    if not report.changed:
        return report
    compact_after(space, wait_s=wait_s)
    return replace(report, version=store_version(space))


def take_in(
    arriving: Iterable[Delivery | Unread],
    data: DataSettings,
    space: Workspace,
    *,
    now: datetime,
    tally: Tally,
    wait_s: float = WAIT_S,
    engine: Engine = HERE,
) -> IngestReport:
    """What `ingest` does with what its source gives; the files of the store are not compacted.

    Parameters
    ----------
    arriving
        What came, by the calendar and hours of `data`; files that are still to be read.
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
    work = partial(parcels, data=data, clock=clock, now=now, limit=BATCH_ROWS)
    if isinstance(arriving, list):  # files; what comes over a wire tells itself how far it is
        arriving = stepwise(arriving, "files taken in")
    for parcel in engine.spread(work, arriving):
        stored += _take(parcel, desk, hours, wait_s=wait_s)
        if time.monotonic() - told > TALK_EVERY_S:
            told = time.monotonic()
            log.info("… %s bars stored so far, now from %s", f"{stored:,}", parcel.delivery.source)
    for held in doubt.release() if doubt else ():
        tally.add_counts(held.once.head(1).select("symbol", duplicates=pl.lit(held.again)))
        with store_writer(space, wait_s=wait_s):
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


def _take(parcel: Parcel, desk: Desk, hours: Hours, *, wait_s: float) -> int:
    """Compare and commit one parcel; returns the number of bars written."""
    delivery, cleaned, tally = parcel.delivery, parcel.cleaned, desk.tally
    for line in delivery.remarks:
        desk.remarks.say(line)
    for symbol, failure in delivery.failures.items():
        tally.add_failure(symbol, failure)
    rejects, extra = cleaned.rejects, delivery.rejects
    if extra is not None and extra.height:
        tally.add_counts(extra.group_by("symbol").agg(received=pl.len()))
        rejects = pl.concat([rejects, extra.select(rejects.columns)]).sort("symbol", "ts", "reason")
    tally.add_counts(cleaned.counts)
    tally.add_rejects(rejects)
    if desk.clock.calendar == ALWAYS_OPEN:
        hours.see(cleaned.bars)
    with store_writer(desk.space, wait_s=wait_s):
        return settle(cleaned.bars, rejects, source=delivery.source, desk=desk, splits=delivery.splits)
