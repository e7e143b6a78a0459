"""In: a workspace, symbols, a range of time. Out: its stored `Bars`, the list of symbols; one commit per batch in."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import UTC, datetime

import polars as pl

from klinepred.bars import tables
from klinepred.bars.check import check_bars
from klinepred.bars.clocks import read_symbols
from klinepred.bars.parts import MONTH
from klinepred.bars.tables import BARS, QUARANTINE, SYMBOLS
from klinepred.calendar import Clock
from klinepred.errors import StoreError
from klinepred.paths import Workspace
from klinepred.schema import BAR, BAR_SCHEMA, CALENDAR, TS, Bars


def scan_bars(
    space: Workspace,
    *,
    symbols: Sequence[str] | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    as_of: int | datetime | None = None,
) -> Bars:
    """Stored bars, lazily; months, symbols and row groups that are not asked for are not read.

    Parameters
    ----------
    symbols
        None = all.
    start, end
        `start <= ts < end`, aware.
    as_of
        The store as it was: a version, or the moment (aware) whose latest version counts.

    Returns
    -------
    Bars
        symbol, ts (UTC, bar open), open, high, low, close, volume, calendar, sorted by symbol and ts. The store holds
        nothing that did not go through `check_bars`, so it is not checked again.

    Raises
    ------
    StoreError
        The store is empty, has not this version, or lacks one of `symbols`.
    """
    need_store(space)
    rows = scan_rows(space, start=start, end=end, as_of=as_of)
    clocks = stored_clocks(space, as_of=as_of)
    if symbols is not None:
        need_symbols(space, list(symbols), as_of=as_of)
        rows = rows.filter(pl.col("symbol").is_in(list(symbols)))
        clocks = {name: clocks[name] for name in dict.fromkeys(symbols)}
    named = {name: str(clock) for name, clock in clocks.items()}
    calendar = pl.col("symbol").replace_strict(
        pl.Series(list(named), dtype=pl.String), pl.Series(list(named.values()), dtype=pl.String)
    )
    return Bars(rows.select(*BAR_SCHEMA, calendar.cast(pl.Categorical).alias(CALENDAR)).sort("symbol", "ts"))


def list_symbols(space: Workspace, *, as_of: int | datetime | None = None) -> pl.DataFrame:
    """What is stored: one row a symbol, sorted.

    Returns
    -------
    polars.DataFrame
        symbol, calendar, hours, zone, source (latest delivery), first_ts, last_ts (bar opens, UTC), bars.
        Empty where nothing is stored.
    """
    spans = (
        tables.scan_table(space.data, BARS, as_of)
        .group_by("symbol")
        .agg(first_ts=pl.col("ts").min(), last_ts=pl.col("ts").max(), bars=pl.len().cast(pl.Int64))
    )
    return read_symbols(space.data, as_of).lazy().join(spans, on="symbol").sort("symbol").collect()


def store_version(space: Workspace, *, as_of: int | datetime | None = None) -> int | None:
    """Version of the bars table; None where nothing was ever stored."""
    table = tables.open_table(space.data / BARS, as_of)
    return None if table is None else table.version()


def stored_clocks(space: Workspace, *, as_of: int | datetime | None = None) -> dict[str, Clock]:
    """The clock each symbol was last taken in by. A symbol may be here before its first bar is committed."""
    rows = read_symbols(space.data, as_of).select("symbol", "calendar", "hours")
    return {symbol: Clock(calendar, hours) for symbol, calendar, hours in rows.iter_rows()}


def has_bars(space: Workspace, *, as_of: int | datetime | None = None) -> set[str]:
    """Symbols of which at least one bar is stored."""
    rows = tables.scan_table(space.data, BARS, as_of)
    return set(rows.select(pl.col("symbol").unique()).collect().to_series())


def read_overlap(space: Workspace, received: pl.DataFrame) -> pl.DataFrame:
    """Stored bars of the symbols of `received`, from its first to its last stamp."""
    if received.is_empty():
        return pl.DataFrame(schema=BAR_SCHEMA)
    low, high = received.select(low=pl.col("ts").min(), high=pl.col("ts").max()).row(0)
    rows = scan_rows(space, start=low, end=high + BAR)
    symbols = received.get_column("symbol").unique().to_list()
    return rows.filter(pl.col("symbol").is_in(symbols)).select(*BAR_SCHEMA).collect()


def keep_quarantine(space: Workspace, rejects: pl.DataFrame, *, source: str) -> None:
    """Add rows to the quarantine that are not in it yet; the same file taken in twice adds nothing."""
    if rejects.is_empty():
        return
    have = tables.scan_table(space.data, QUARANTINE).select(*BAR_SCHEMA, "reason").collect()
    fresh = rejects.unique(maintain_order=True)
    if have.height:
        fresh = fresh.join(have, on=fresh.columns, how="anti", nulls_equal=True, maintain_order="left")
    if fresh.height:
        rows = fresh.with_columns(source=pl.lit(source))
        tables.append(space.data, QUARANTINE, rows, note={"klinepred.source": source})


def keep_symbols(space: Workspace, symbols: Sequence[str], *, clock: Clock, source: str) -> None:
    """Remember by which clock `symbols` live; a commit only where that changes something."""
    have = read_symbols(space.data)
    rows = pl.DataFrame(
        [(name, clock.calendar, clock.hours, clock.zone, source) for name in symbols],
        schema=tables.SCHEMAS[SYMBOLS],
        orient="row",
    )
    table = pl.concat([have.filter(~pl.col("symbol").is_in(list(symbols))), rows]).sort("symbol")
    latest = tables.scan_table(space.data, SYMBOLS).collect()  # other than `have` where a change was stopped half-way
    if not table.equals(latest.sort("symbol")):
        tables.overwrite(space.data, SYMBOLS, table, note={"klinepred.source": source})


def commit_bars(
    space: Workspace, *, new: pl.DataFrame, revised: pl.DataFrame, stored: pl.DataFrame, clock: Clock, source: str
) -> None:
    """Put new and revised bars in, as one commit. The caller holds the writer's lock.

    Parameters
    ----------
    new, revised
        `BAR_SCHEMA` and `month`, sorted; no bar is in both.
    stored
        What `read_overlap` gave for these bars, under the same lock.
    """
    note = {"klinepred.source": source, "klinepred.new": str(new.height), "klinepred.revised": str(revised.height)}
    if revised.is_empty():
        if new.height:
            check_bars(new, clock=clock)
            tables.append(space.data, BARS, new, note=note)
        return
    # Replace the smallest box of symbols and time that holds every revised bar. New bars outside the box must come
    # in the same commit, so the box is drawn around both.
    change = pl.concat([new, revised])
    box = change.select(low=pl.col("ts").min(), high=pl.col("ts").max()).row(0, named=True)
    symbols = change.get_column("symbol").unique().sort().to_list()
    kept = stored.filter(
        pl.col("symbol").is_in(symbols) & (pl.col("ts") >= box["low"]) & (pl.col("ts") <= box["high"])
    ).join(revised, on=["symbol", "ts"], how="anti")
    kept = kept.with_columns(pl.col("ts").dt.strftime("%Y-%m").alias(MONTH))
    rows = pl.concat([change.select(kept.columns), kept]).sort("symbol", "ts")
    check_bars(rows, clock=clock)
    inside = pl.col("symbol").is_in(symbols) & pl.col("ts").is_between(box["low"], box["high"])
    months = f"{box['low']:%Y-%m}", f"{box['high']:%Y-%m}"
    tables.overwrite(space.data, BARS, rows, note=note, where=inside, months=months)


def scan_rows(
    space: Workspace,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    as_of: int | datetime | None = None,
) -> pl.LazyFrame:
    """Stored rows with `start <= ts < end` (aware), unsorted; only the files of their months are opened."""
    first, last = (None if stamp is None else f"{_utc(stamp):%Y-%m}" for stamp in (start, end))
    rows = tables.scan_table(space.data, BARS, as_of, first=first, last=last)
    if start is not None:
        rows = rows.filter(pl.col("ts") >= pl.lit(start).cast(TS))
    if end is not None:
        rows = rows.filter(pl.col("ts") < pl.lit(end).cast(TS))
    return rows


def _utc(stamp: datetime) -> datetime:
    return stamp.astimezone(UTC)


def need_store(space: Workspace) -> None:
    """Raise a StoreError where no bar was ever stored."""
    if tables.open_table(space.data / BARS) is None:
        raise StoreError(
            f"store {space.data}",
            expected="stored bars",
            got="none yet in this workspace",
            do="run klinepred ingest first, or pass -w with the workspace that has them",
        )


def need_symbols(space: Workspace, symbols: list[str], *, as_of: int | datetime | None = None) -> None:
    """Raise a StoreError that names those of `symbols` that have no bars, and what comes near."""
    have = sorted(has_bars(space, as_of=as_of))
    absent = [name for name in symbols if name not in set(have)]
    if absent:
        near = difflib.get_close_matches(absent[0].upper(), have, n=3)
        some = ", ".join(have[:8]) + (f" and {len(have) - 8} more" if len(have) > 8 else "")
        raise StoreError(
            f"no data for {', '.join(absent[:10])}{' …' if len(absent) > 10 else ''}",
            expected=f"symbols of the store: {some}",
            got=f"{len(absent)} it does not have",
            do=f"did you mean {', '.join(near)}?" if near else "run klinepred ingest for them; klinepred bars list",
        )
