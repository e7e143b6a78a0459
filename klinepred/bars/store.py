"""In: a workspace, symbols, a range of time. Out: its stored `Bars`, the list of symbols, what was set aside."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import UTC, datetime

import polars as pl

from klinepred.aliases import canonical
from klinepred.bars import tables
from klinepred.bars.clocks import read_symbols
from klinepred.bars.commits import list_versions
from klinepred.bars.isolated import is_suspect
from klinepred.bars.tables import BARS, QUARANTINE, SYMBOLS
from klinepred.calendar import Clock
from klinepred.errors import StoreError
from klinepred.paths import Workspace
from klinepred.schema import BAR_SCHEMA, CALENDAR, TS, Bars


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
        The store is empty, has not this version, lacks one of `symbols`, or does not know their calendar.
    """
    need_store(space)
    rows = scan_rows(space, start=start, end=end, as_of=as_of)
    clocks = stored_clocks(space, as_of=as_of)
    if symbols is not None:
        need_symbols(space, list(symbols), as_of=as_of)
        rows = rows.filter(pl.col("symbol").is_in(list(symbols)))
    strange = strange_symbols(space, as_of=as_of) if symbols is None else sorted(set(symbols) - set(clocks))
    if strange:
        raise StoreError(
            f"bars of {', '.join(strange[:10])}{' …' if len(strange) > 10 else ''}",
            expected="the calendar by which they were taken in",
            got=f"none for {len(strange)} symbols: something else than klinepred wrote into {space.store}",
            do="see klinepred bars history, and go back with klinepred bars restore --as-of VERSION",
        )
    if symbols is not None:
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
        tables.scan_table(space.store, BARS, as_of)
        .group_by("symbol")
        .agg(first_ts=pl.col("ts").min(), last_ts=pl.col("ts").max(), bars=pl.len().cast(pl.Int64))
        .collect(engine="streaming")
    )
    names = read_symbols(space.store, as_of).lazy().join(spans.lazy(), on="symbol").sort("symbol").collect()
    aliases = {name: canonical(name) for name in names["calendar"].unique()}  # older stores may have NYSE for XNYS
    return names.with_columns(pl.col("calendar").replace(aliases))


def store_version(space: Workspace, *, as_of: int | datetime | None = None) -> int | None:
    """Version of the bars table; None where nothing was ever stored."""
    table = tables.open_table(space.store / BARS, as_of)
    return None if table is None else table.version()


def latest_version(space: Workspace) -> int | None:
    """`store_version` by the names in the log alone: the table is not opened."""
    return max(list_versions(space.store / BARS), default=None)


def stored_clocks(space: Workspace, *, as_of: int | datetime | None = None) -> dict[str, Clock]:
    """The clock each symbol was last taken in by. A symbol may be here before its first bar is committed."""
    rows = read_symbols(space.store, as_of).select("symbol", "calendar", "hours")
    return {symbol: Clock(calendar, hours) for symbol, calendar, hours in rows.iter_rows()}


def strange_symbols(space: Workspace, *, as_of: int | datetime | None = None) -> list[str]:
    """Symbols with bars but no clock, sorted: no ingest leaves such behind."""
    known = stored_clocks(space, as_of=as_of)
    return sorted(str(name) for name in has_bars(space, as_of=as_of) if name not in known)


def simulated_symbols(space: Workspace) -> set[str]:
    """Symbols whose latest delivery came from the simulated market."""
    return set(read_symbols(space.store).filter(pl.col("source").str.starts_with("simulate"))["symbol"])


def has_bars(space: Workspace, *, as_of: int | datetime | None = None) -> set[str]:
    """Symbols of which at least one bar is stored."""
    rows = tables.scan_table(space.store, BARS, as_of)
    return set(rows.select(pl.col("symbol").unique()).collect(engine="streaming").to_series())


def keep_quarantine(space: Workspace, rejects: pl.DataFrame, *, source: str) -> None:
    """Add rows to the quarantine that are not in it yet; the same file taken in twice adds nothing."""
    if rejects.is_empty():
        return
    # a price in doubt is one reason, whichever neighbours it was compared with
    kind = pl.when(is_suspect()).then(pl.lit("price")).otherwise("reason").alias("_kind")
    keys = [*BAR_SCHEMA, "_kind"]
    have = tables.scan_table(space.store, QUARANTINE).select(*BAR_SCHEMA, "reason").with_columns(kind).collect()
    fresh = rejects.with_columns(kind).unique(keys, maintain_order=True)
    if have.height:
        fresh = fresh.join(have, on=keys, how="anti", nulls_equal=True, maintain_order="left")
    if fresh.height:
        rows = fresh.select(*BAR_SCHEMA, "reason", source=pl.lit(source))
        tables.append(space.store, QUARANTINE, rows, note={"klinepred.source": source})


def keep_symbols(space: Workspace, symbols: Sequence[str], *, clock: Clock, source: str) -> None:
    """Remember by which clock `symbols` live; a commit only where that changes something."""
    have = read_symbols(space.store)
    rows = pl.DataFrame(
        [(name, clock.calendar, clock.hours, clock.zone, source) for name in symbols],
        schema=tables.SCHEMAS[SYMBOLS],
        orient="row",
    )
    table = pl.concat([have.filter(~pl.col("symbol").is_in(list(symbols))), rows]).sort("symbol")
    latest = tables.scan_table(space.store, SYMBOLS).collect()  # other than `have` where a change was stopped half-way
    if not table.equals(latest.sort("symbol")):
        tables.overwrite(space.store, SYMBOLS, table, note={"klinepred.source": source})


def scan_rows(
    space: Workspace,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    as_of: int | datetime | None = None,
) -> pl.LazyFrame:
    """Stored rows with `start <= ts < end` (aware), unsorted; only the files of their months are opened."""
    first, last = (None if stamp is None else f"{_utc(stamp):%Y-%m}" for stamp in (start, end))
    rows = tables.scan_table(space.store, BARS, as_of, first=first, last=last)
    if start is not None:
        rows = rows.filter(pl.col("ts") >= pl.lit(start).cast(TS))
    if end is not None:
        rows = rows.filter(pl.col("ts") < pl.lit(end).cast(TS))
    return rows


def _utc(stamp: datetime) -> datetime:
    return stamp.astimezone(UTC)


def need_store(space: Workspace) -> None:
    """Raise a StoreError where no bar was ever stored."""
    if tables.open_table(space.store / BARS) is None:
        raise StoreError(
            f"store {space.store}",
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
