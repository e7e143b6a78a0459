"""In: the data settings of a pipeline, a workspace. Out: bars in its store, and a report of what became of each row."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

import polars as pl

from klinepred.bars.clean import clean
from klinepred.bars.compaction import compact_after
from klinepred.bars.delivery import Delivery, Failure
from klinepred.bars.doubt import Doubt
from klinepred.bars.lock import WAIT_S, writer
from klinepred.bars.reconcile import reconcile
from klinepred.bars.report import IngestReport
from klinepred.bars.store import (
    commit_bars,
    has_bars,
    keep_quarantine,
    keep_symbols,
    read_overlap,
    store_version,
    stored_clocks,
)
from klinepred.bars.tally import Tally
from klinepred.calendar import Clock, segments
from klinepred.errors import SourceError, UsageError
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
    at = datetime.now(UTC) if now is None else now.astimezone(UTC)
    tally = Tally()
    remarks: dict[str, None] = {}
    doubt = Doubt() if _many(data) else None
    desk = _Desk(space, clock, tally, doubt, before=store_version(space), wait_s=wait_s)
    told = time.monotonic()
    stored = 0
    for delivery in deliveries(data, clock, at, space=space, tally=tally):
        for line in delivery.remarks:
            if line not in remarks:
                log.info(line)
                remarks[line] = None
        for symbol, failure in delivery.failures.items():
            tally.add_failure(symbol, failure)
        stored += _take(delivery, data, desk, now=at)
        if time.monotonic() - told > TALK_EVERY_S:
            told = time.monotonic()
            log.info("… %s bars stored so far, now from %s", f"{stored:,}", delivery.source)
    for good, again, source in doubt.release() if doubt else ():
        tally.add_counts(good.head(1).select("symbol", duplicates=pl.lit(again)))
        with writer(space.data, wait_s=wait_s):
            _commit(good, good.clear(), source, replace(desk, doubt=None))
    if not tally.reports():
        raise _no_rows(data)
    if store_version(space) != desk.before:
        compact_after(space, wait_s=wait_s)
    return IngestReport(version=store_version(space), symbols=tally.reports(), remarks=tuple(remarks))


def _no_rows(data: DataSettings) -> SourceError:
    span = f" from {data.start or 'the first day'} to {data.end or 'the last'}" if data.start or data.end else ""
    return SourceError(
        f"ingest from {data.source}",
        expected=f"at least one row{span}",
        got="none",
        do="check --start and --end against what the source holds" if span else "check that the source is not empty",
    )


def deliveries(
    data: DataSettings, clock: Clock, now: datetime, *, space: Workspace | None = None, tally: Tally | None = None
) -> Iterator[Delivery]:
    """What the source of `data` gives, one delivery after another; for errors see `ingest`.

    An exchange is asked only for what is not in the store of `space` (None: as if nothing were), which `tally` is told.
    """
    if data.source == "files":
        from klinepred.bars.sources.files import read_files

        if not data.paths:
            raise UsageError(
                "ingest from files",
                expected="at least one file, folder or pattern",
                got="none",
                do="write klinepred ingest PATH…, or set data.paths in the pipeline",
            )
        return read_files(
            [Path(path) for path in data.paths],
            clock=clock,
            tz=data.tz,
            stamp=data.stamp,
            symbols=data.symbols,
            vendor=data.vendor,
        )
    if data.source == "simulate":
        from klinepred.bars.sources.simulate import simulate

        return simulate(data.simulate, clock=clock)
    if not data.symbols:
        named, some = ("Yahoo", "AAPL,MSFT") if data.source == "yahoo" else ("an exchange", "BTC/USDT,ETH/USDT")
        raise UsageError(
            f"ingest from {named}",
            expected="at least one symbol",
            got="none",
            do=f"add --symbols {some}, or set data.symbols in the pipeline",
        )
    if data.source == "exchange":
        from klinepred.bars.resume import from_exchange

        return from_exchange(data, clock, now, space=space, tally=tally)
    from klinepred.bars.sources.yahoo import fetch

    return fetch(data.symbols, clock=clock, start=data.start, end=data.end, now=now)


def _many(data: DataSettings) -> bool:
    """Whether the bars of one symbol may come in several deliveries."""
    if data.source == "files":
        from klinepred.bars.sources.files import are_many, find_files

        return are_many(find_files([Path(path) for path in data.paths]))
    return data.source in ("simulate", "exchange")


@dataclass(frozen=True)
class _Desk:
    """What all deliveries of one ingest share."""

    space: Workspace
    clock: Clock
    tally: Tally
    doubt: Doubt | None
    before: int | None
    wait_s: float


def _take(delivery: Delivery, data: DataSettings, desk: _Desk, *, now: datetime) -> int:
    """Clean, compare and commit one delivery; returns the number of bars written."""
    frame, extra, clock, tally = delivery.frame, delivery.rejects, desk.clock, desk.tally
    if data.source == "files":
        frame = within(frame, data.start, data.end, clock)
    written = 0
    for part in _batches(frame):
        cleaned = clean(part, clock=clock, now=now)
        rejects = cleaned.rejects
        if extra is not None and extra.height:
            tally.add_counts(extra.group_by("symbol").agg(received=pl.len()))
            rejects, extra = pl.concat([rejects, extra.select(rejects.columns)]).sort("symbol", "ts", "reason"), None
        tally.add_counts(cleaned.counts)
        tally.add_bars(cleaned.bars)
        tally.add_rejects(rejects)
        with writer(desk.space.data, wait_s=desk.wait_s):
            written += _commit(cleaned.bars, rejects, delivery.source, desk)
    return written


def _commit(good: pl.DataFrame, bad: pl.DataFrame, source: str, desk: _Desk) -> int:
    """Store what may be stored; what is in doubt is held if more of it may come. The caller holds the writer's lock."""
    space, clock, tally, doubt = desk.space, desk.clock, desk.tally, desk.doubt
    clocks = stored_clocks(space)
    here = {*good["symbol"].unique(), *bad["symbol"].unique()}
    other = {name for name in here if clocks.get(name, clock) != clock}
    other &= has_bars(space) if other else other  # a stopped ingest leaves a clock without a bar: that binds nobody
    for name in sorted(other):
        tally.add_failure(
            name,
            Failure(
                "rejected",
                f"stored by the calendar {clocks[name]}, this ingest uses {clock}: pass --calendar "
                f"{clocks[name].calendar} --hours {clocks[name].hours}, or use another workspace",
            ),
        )
    known = doubt.refused if doubt else set[str]()
    good = _without(good, other | known)
    stored = read_overlap(space, good)
    result = reconcile(good, stored)
    refused = result.refused
    for name, reason in refused.items():
        tally.add_failure(name, Failure("rejected", f"{reason}; {_kept(name, desk)}"))
    if doubt:
        for name in refused:
            doubt.refuse(name)
        waiting = (doubt.held() & {*good["symbol"].unique()}) | result.doubtful
        if waiting:
            doubt.hold(good, waiting, source=source)
            result = reconcile(_without(good, waiting | set(refused)), stored)
    tally.add_counts(result.counts)
    # Quarantine, then symbols, then bars: stopped in between, what is there is true, and a second try adds the rest.
    shut = [*other, *known, *refused]
    keep_quarantine(space, bad.filter(~pl.col("symbol").is_in(shut).fill_null(False)), source=source)
    moved = [*result.new["symbol"].unique(), *result.revised["symbol"].unique()]
    if moved:
        keep_symbols(space, sorted(set(moved)), clock=clock, source=source)
        commit_bars(space, new=result.new, revised=result.revised, stored=stored, clock=clock, source=source)
    return result.new.height + result.revised.height


def _kept(name: str, desk: _Desk) -> str:
    """What of a refused symbol is stored all the same, because it came before there was a doubt."""
    taken = desk.tally.taken(name)
    if not taken:
        return "nothing of this symbol was stored"
    back = "" if desk.before is None else f"; the state before is version {desk.before} (--as-of {desk.before})"
    return f"{taken:,} bars of it that came before in this ingest are stored{back}"


def _without(frame: pl.DataFrame, symbols: set[str]) -> pl.DataFrame:
    return frame.filter(~pl.col("symbol").is_in(list(symbols))) if symbols else frame


def _batches(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The rows of whole symbols, at most `BATCH_ROWS` at a time (or one symbol, if it has more)."""
    if frame.height <= BATCH_ROWS:
        yield frame
        return
    runs = frame.get_column("symbol").rle().struct.unnest()
    grouped = runs.get_column("value").n_unique() == runs.height
    sizes = runs.group_by("value", maintain_order=True).agg(pl.col("len").sum())
    start, rows = 0, 0
    names: list[str | None] = []
    for name, size in [*sizes.iter_rows(), (None, BATCH_ROWS)]:
        if names and rows + size > BATCH_ROWS:
            mine = pl.col("symbol").is_in(names, nulls_equal=True)
            yield frame.slice(start, rows) if grouped else frame.filter(mine)
            start, rows, names = start + rows, 0, []
        rows += size
        names.append(name)


def within(frame: pl.DataFrame, start: date | None, end: date | None, clock: Clock) -> pl.DataFrame:
    """Rows whose day in the calendar's zone lies between `start` and `end`, both included."""
    day = pl.col("ts").dt.convert_time_zone(clock.zone).dt.date()
    if start is not None:
        frame = frame.filter((day >= start) | pl.col("ts").is_null())
    if end is not None:
        frame = frame.filter((day <= end) | pl.col("ts").is_null())
    return frame
