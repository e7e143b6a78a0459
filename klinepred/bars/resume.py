"""In: settings that name an exchange, a workspace. Out: its bars, as far as they are not stored already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import polars as pl

from klinepred.bars import tables
from klinepred.bars.delivery import Delivery, Failure
from klinepred.bars.tables import BARS, SYMBOLS
from klinepred.bars.tally import Tally
from klinepred.calendar import Clock, place
from klinepred.errors import UsageError
from klinepred.paths import Workspace
from klinepred.schema import BAR, CALENDAR
from klinepred.settings import DataSettings

Span = tuple[datetime, datetime]


def from_exchange(
    data: DataSettings, clock: Clock, now: datetime, *, space: Workspace | None, tally: Tally | None
) -> Iterator[Delivery]:
    """What the exchange gives, without the stretches that are stored; `tally` is told of those.

    Parameters
    ----------
    space
        None = as if nothing were stored.

    Raises
    ------
    UsageError, SourceError
        No exchange is named, or one that cannot be used.
    """
    from klinepred.bars.sources.exchange import fetch

    name = need_exchange(data)
    since = None if data.start is None else datetime.combine(data.start, datetime.min.time(), UTC)
    stored = {} if space is None else stored_spans(space, data.symbols, since=since)
    if tally is not None and data.start is not None and data.end is None:
        for symbol, spans in stored.items():
            tally.add_stored(symbol, stored_slots(spans, clock))
    return fetch(
        data.symbols,
        exchange=name,
        start=data.start,
        end=data.end,
        now=now,
        stored=stored,
        barred={} if space is None else from_elsewhere(space, data.symbols, name),
    )


def need_exchange(data: DataSettings) -> str:
    """The exchange that the settings name.

    Raises
    ------
    UsageError
        They name none, or a calendar by which no exchange trades.
    """
    if not data.exchange:
        raise UsageError(
            "ingest from an exchange",
            expected="the name of one, as ccxt writes it",
            got="none",
            do="add --exchange binance (kraken, coinbase, bybit, okx, …), or set data.exchange in the pipeline",
        )
    if data.calendar != "24/7" or data.hours != "regular":
        raise UsageError(
            f"ingest from {data.exchange}",
            expected="the calendar 24/7: exchanges of coins never close",
            got=f"{Clock(data.calendar, data.hours)}",
            do="pass --calendar 24/7, or a pipeline that has it, such as -p crypto-5m",
        )
    return data.exchange


def stored_spans(space: Workspace, symbols: Sequence[str], *, since: datetime | None) -> dict[str, list[Span]]:
    """First and last bar of each stretch without a gap, in time order, by symbol.

    Parameters
    ----------
    symbols
        In any case; the result has the names that are stored.
    since
        Nothing before it is looked at (aware). None = everything, as one stretch from the first bar to the last.
    """
    rows = tables.scan_table(space.store, BARS, first=None if since is None else f"{since:%Y-%m}")
    named = pl.col("symbol").str.to_uppercase().is_in(sorted({name.upper() for name in symbols}))
    rows = rows.filter(named).select("symbol", "ts")
    run = pl.lit(0, pl.UInt32)
    if since is not None:
        rows = rows.filter(pl.col("ts") >= since).sort("symbol", "ts")
        run = (pl.col("ts") - pl.col("ts").shift(1) != BAR).fill_null(True).cum_sum().over("symbol")
    spans = (
        rows.with_columns(run=run)
        .group_by("symbol", "run")
        .agg(first=pl.col("ts").min(), last=pl.col("ts").max())
        .sort("symbol", "first")
        .collect()
    )
    found: dict[str, list[Span]] = {}
    for symbol, first, last in spans.select("symbol", "first", "last").iter_rows():
        found.setdefault(symbol, []).append((first, last))
    return found


def stored_slots(spans: Sequence[Span], clock: Clock) -> pl.DataFrame:
    """The stretches as places on the calendar's grid: columns `first`, `last` (Int64), a row each."""
    ends = pl.DataFrame({"first": [first for first, _ in spans], "last": [last for _, last in spans]})
    calendar = pl.lit(str(clock)).alias(CALENDAR)
    return pl.DataFrame(
        {name: place(ends.select(calendar, pl.col(name).alias("ts"))).get_column("slot") for name in ends.columns}
    )


def from_elsewhere(space: Workspace, symbols: Sequence[str], exchange: str) -> dict[str, Failure]:
    """Symbols whose stored bars came from another exchange: two venues under one name would be one false history."""
    upper = sorted({name.upper() for name in symbols})
    rows = tables.scan_table(space.store, SYMBOLS).filter(pl.col("symbol").str.to_uppercase().is_in(upper))
    venue = pl.col("source").str.extract(r"^exchange (\S+) ")
    other = rows.select("symbol", venue=venue).filter(pl.col("venue") != exchange).collect()
    return {
        symbol: Failure(
            "rejected",
            f"stored from {venue}, this ingest is from {exchange}: their prices and volumes are not the same; "
            "use another workspace (-w) for it",
        )
        for symbol, venue in other.iter_rows()
    }
