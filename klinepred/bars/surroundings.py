"""In: received bars. Out: the stored bars, and those set aside, at and around their times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import polars as pl

from klinepred.bars import tables
from klinepred.bars.isolated import is_suspect
from klinepred.bars.parts import list_parts
from klinepred.bars.store import scan_rows
from klinepred.bars.tables import BARS, QUARANTINE
from klinepred.paths import Workspace
from klinepred.schema import BAR, BAR_SCHEMA


def read_around(space: Workspace, received: pl.DataFrame, *, margin: timedelta = timedelta(0)) -> pl.DataFrame:
    """Stored bars of the symbols of `received`, from `margin` before its first stamp to `margin` after its last."""
    if received.is_empty():
        return pl.DataFrame(schema=BAR_SCHEMA)
    low, high = received.select(low=pl.col("ts").min(), high=pl.col("ts").max()).row(0)
    rows = scan_rows(space, start=low - margin, end=high + margin + BAR)
    symbols = received.get_column("symbol").unique().to_list()
    return rows.filter(pl.col("symbol").is_in(symbols)).select(*BAR_SCHEMA).collect()


def read_history(space: Workspace, symbols: Sequence[str]) -> pl.DataFrame:
    """All stored bars of `symbols`, in the shape of `BAR_SCHEMA`, unsorted."""
    rows = tables.scan_table(space.store, BARS).filter(pl.col("symbol").is_in(list(symbols)))
    return rows.select(*BAR_SCHEMA).collect()


def read_edges(space: Workspace, spans: pl.DataFrame) -> pl.DataFrame:
    """Of each symbol the last stored bar before its span and the first one after it, however far away.

    Parameters
    ----------
    spans
        symbol, low, high (aware): no stored bar of the symbol lies from `low` to `high`.
    """
    found = [pl.DataFrame(schema=BAR_SCHEMA)]
    table = tables.open_table(space.store / BARS)
    months = sorted({str(part.month) for part in list_parts(table)}) if table else []
    for before in (True, False):
        side = spans.select("symbol", edge="low" if before else "high")
        past = pl.col("ts") < pl.col("edge") if before else pl.col("ts") > pl.col("edge")
        for month in reversed(months) if before else months:
            if side.is_empty():
                break
            near = side.filter(
                pl.col("edge").dt.strftime("%Y-%m") >= month if before else pl.col("edge").dt.strftime("%Y-%m") <= month
            )
            if near.is_empty():
                continue
            rows = tables.scan_table(space.store, BARS, first=month, last=month).join(near.lazy(), on="symbol")
            hit = rows.filter(past).sort("ts", descending=before).unique("symbol", keep="first").select(*BAR_SCHEMA)
            found.append(hit.collect())
            side = side.join(found[-1], on="symbol", how="anti")
    return pl.concat(found)


def read_suspects(space: Workspace, received: pl.DataFrame, *, margin: timedelta) -> pl.DataFrame:
    """Rows of the quarantine that were set aside for their price alone, of the symbols and times of `received`."""
    if received.is_empty():
        return pl.DataFrame(schema={**BAR_SCHEMA, "reason": pl.String()})
    low, high = received.select(low=pl.col("ts").min() - margin, high=pl.col("ts").max() + margin).row(0)
    here = pl.col("ts").is_between(low, high) & pl.col("symbol").is_in(received.get_column("symbol").unique().to_list())
    return (
        tables.scan_table(space.store, QUARANTINE).filter(is_suspect() & here).select(*BAR_SCHEMA, "reason").collect()
    )
