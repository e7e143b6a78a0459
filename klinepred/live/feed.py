"""In: the data settings of a pipeline, a workspace. Out: a call that takes in what is new by a moment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import Final

import polars as pl

from klinepred.bars.delivery import Delivery
from klinepred.bars.ingest import take_in
from klinepred.bars.report import FAILED, IngestReport
from klinepred.bars.store import list_symbols
from klinepred.bars.supply import deliveries
from klinepred.bars.tally import Tally
from klinepred.calendar import Clock, segments
from klinepred.errors import UsageError
from klinepred.paths import Workspace
from klinepred.schema import BAR
from klinepred.settings import DataSettings

log = logging.getLogger("klinepred.live")

Feed = Callable[[datetime], IngestReport]
"""Takes in what the source has at a moment, as `klinepred ingest --now` does."""

AGAIN: Final = timedelta(days=1)
"""What has come in this long before the last success is asked for again: vendors revise their newest bars."""
LOCK_S: Final = 30.0
"""How long to wait for another ingest before the next try."""


def feed_of(data: DataSettings, space: Workspace, symbols: Sequence[str], *, now: datetime) -> Feed:
    """The feed from the source that `data` names.

    Parameters
    ----------
    symbols
        Whom an online source is asked for.
    now
        When it begins: a simulated market that ends before then is refused.

    Raises
    ------
    UsageError
        The source can never bring a new bar.
    """
    clock = Clock(data.calendar, data.hours)
    segments(clock)
    if data.source in ("yahoo", "exchange"):
        data = data.model_copy(update={"symbols": tuple(symbols), "end": None})
    elif data.source == "files" and not data.paths:
        raise UsageError(
            "--follow with files",
            expected="data.paths of the pipeline to name the files that grow",
            got="none",
            do="set data.paths, or pass --no-ingest and let another `klinepred ingest` bring the bars",
        )
    if data.source == "simulate":
        return _simulated(data, space, now=now)
    reached = _reached(space, symbols)

    def ask(moment: datetime) -> IngestReport:
        since = None if None in reached.values() else min(filter(None, reached.values()), default=None)
        asked = data if since is None else data.model_copy(update={"start": max(since, data.start or since)})
        tally = Tally()
        came = deliveries(asked, clock, moment, space=space, tally=tally)
        report = take_in(came, asked, space, now=moment, tally=tally, wait_s=LOCK_S)
        for row in report.symbols:
            if row.status == "unknown-symbol":
                reached.pop(row.symbol, None)  # nothing of it will come: the others need not go back for it
            elif row.status not in FAILED:
                reached[row.symbol] = (moment - AGAIN).date()
        return report

    return ask


def _reached(space: Workspace, symbols: Sequence[str]) -> dict[str, date | None]:
    """The day from which on each symbol is asked for; None = from the pipeline's first."""
    stored = list_symbols(space).filter(pl.col("symbol").is_in(list(symbols))).select("symbol", "last_ts")
    return {**dict.fromkeys(symbols), **{name: (last - AGAIN).date() for name, last in stored.iter_rows()}}


def _simulated(data: DataSettings, space: Workspace, *, now: datetime) -> Feed:
    """The simulated market is made once; each bar of it comes in when it has closed."""
    from klinepred.bars.sources.simulate import simulate

    if data.simulate.end < now.date():
        raise UsageError(
            "--follow with the simulated market",
            expected=f"a session of it after {now:%Y-%m-%d}",
            got=f"data.simulate.end = {data.simulate.end}",
            do="replay with --now and --until before its end, or move the end with --set data.simulate.end=DATE",
        )
    clock = Clock(data.calendar, data.hours)
    # simulated here at once: month by month, and only what is not past is kept
    floor = now - AGAIN
    kept = [
        Delivery(part, one.source)
        for one in simulate(data.simulate, clock=clock)
        if (part := one.frame.filter(pl.col("ts") >= floor)).height
    ]

    def ask(moment: datetime) -> IngestReport:
        nonlocal kept
        due = pl.col("ts") + BAR <= moment
        came = [Delivery(part, one.source) for one in kept if (part := one.frame.filter(due)).height]
        if not came:
            return IngestReport(version=None, symbols=())
        report = take_in(came, data, space, now=moment, tally=Tally())
        kept = [Delivery(part, one.source) for one in kept if (part := one.frame.filter(~due)).height]
        return report

    return ask


def fed_by(make: Callable[[datetime], Iterable[Delivery]], data: DataSettings, space: Workspace) -> Feed:
    """A feed from what `make` gives for a moment, by the calendar and hours of `data`."""

    def ask(moment: datetime) -> IngestReport:
        return take_in(make(moment), data, space, now=moment, tally=Tally(), wait_s=LOCK_S)

    return ask


def failures_of(report: IngestReport) -> dict[str, str]:
    """Reason by symbol of those that could not be had."""
    return {row.symbol: f"{row.status}: {row.message}" for row in report.symbols if row.status in FAILED}
