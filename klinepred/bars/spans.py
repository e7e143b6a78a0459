"""In: first and last bars of symbols. Out: their sessions, who ended, who took another name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime
from typing import Final

import polars as pl

from klinepred.calendar import Clock, newest_finished, place, segments
from klinepred.schema import CALENDAR, TS

ENDED: Final = 5
"""Sessions without a bar, while others of the calendar have some, after which a symbol counts as ended: fewer are a
halt, a quiet symbol, or an ingest that came a day or two later than the others'."""
SAME_PRICE: Final = 0.05
"""A new symbol that opens within this share of another's last close, a session later, may be its new name."""
CROWD: Final = 5
"""Where more symbols than this begin in one session, the universe was exchanged: that tells nothing of names."""
RENAMES: Final[dict[str, pl.DataType]] = {
    "symbol": pl.String(),
    "renamed_to": pl.String(),
    "ended": pl.Date(),
    "began": pl.Date(),
    "last_close": pl.Float64(),
    "first_open": pl.Float64(),
}


def add_sessions(table: pl.DataFrame) -> pl.DataFrame:
    """Add `first_session` and `last_session` (Date) to rows of `calendar` (text of a Clock), `first_ts`, `last_ts`."""
    for edge in ("first", "last"):
        placed = place(table.select(CALENDAR, ts=f"{edge}_ts"))
        table = table.with_columns(placed["session"].alias(f"{edge}_session"))
    return table


def newest_sessions(table: pl.DataFrame, *, now: datetime | None = None) -> dict[str, date]:
    """By calendar the newest session that any of its symbols has, but none after `now` (aware).

    Parameters
    ----------
    table
        calendar (text of a Clock), last_session.
    """
    newest = dict(table.group_by(CALENDAR).agg(pl.col("last_session").max()).drop_nulls().iter_rows())
    if now is None:
        return newest
    for name in newest:
        bar = newest_finished(Clock.parse(name), now)
        here = pl.DataFrame({"ts": [bar], CALENDAR: [name]}, schema={"ts": TS, CALENDAR: pl.String})
        today = place(here)["session"][0]
        newest[name] = min(newest[name], today) if today is not None else newest[name]
    return newest


def mark_ended(table: pl.DataFrame, newest: Mapping[str, date] | None = None) -> pl.DataFrame:
    """Add `ended`: the last session of a symbol that others of its calendar have left behind (see `ENDED`), else null.

    Parameters
    ----------
    table
        calendar (text of a Clock), last_session.
    newest
        By calendar; default: that of `table`.
    """
    known = newest_sessions(table) if newest is None else newest
    rows = table.with_columns(
        _newest=pl.col(CALENDAR).cast(pl.String).replace_strict(known, default=None, return_dtype=pl.Date)
    )
    last, new = _ranks(rows, "last_session"), _ranks(rows, "_newest")
    gone = (new - last >= ENDED).fill_null(False)
    return rows.with_columns(ended=pl.when(gone).then("last_session")).drop("_newest")


def read_clocks(listed: pl.DataFrame) -> pl.DataFrame:
    """What `klinepred.bars.store.list_symbols` gave, with `calendar` as text of a Clock and first and last session."""
    clocks = [str(Clock(*pair)) for pair in listed.select("calendar", "hours").iter_rows()]
    return add_sessions(listed.with_columns(pl.Series(CALENDAR, clocks, dtype=pl.String)))


def find_renames(table: pl.DataFrame) -> pl.DataFrame:
    """Pairs that look like one instrument under two names: columns `RENAMES`, sorted.

    One ends in a session, the other begins in the next one of the same calendar, at nearly the same price; of several
    that would do, the nearest in price, each symbol once.

    Parameters
    ----------
    table
        symbol, calendar (text of a Clock), first_session, last_session, first_open, last_close.
    """
    rows = table.with_columns(_first=_ranks(table, "first_session"), _last=_ranks(table, "last_session"))
    ends = rows.select("symbol", CALENDAR, "last_close", ended="last_session", _at=pl.col("_last") + 1)
    starts = rows.select(CALENDAR, "first_open", renamed_to="symbol", began="first_session", _at="_first")
    starts = starts.filter(pl.len().over(CALENDAR, "_at") <= CROWD)
    apart = (pl.col("first_open") / pl.col("last_close")).log().abs()
    pairs = ends.join(starts, on=[CALENDAR, "_at"]).with_columns(_apart=apart)
    pairs = pairs.filter(pl.col("_apart") < math.log1p(SAME_PRICE)).sort("_apart", "symbol", "renamed_to")
    nearest = pairs.unique("symbol", keep="first", maintain_order=True)
    return nearest.unique("renamed_to", keep="first").select(RENAMES.keys()).sort("symbol")


def years(table: pl.DataFrame) -> float:
    """Symbol-years of rows of first_session, last_session."""
    days = table.select((pl.col("last_session") - pl.col("first_session")).dt.total_days().sum()).item()
    return float(days or 0) / 365.25


def late_starters(table: pl.DataFrame, *, sessions: int = ENDED) -> pl.DataFrame:
    """Rows of symbols that begin over `sessions` sessions after `begin`, which is added; by first_session.

    `begin` is the session by which a tenth of the symbols of the calendar, at least one, had begun: a few longer
    histories do not make all others late.
    """
    early = pl.col("first_session").sort().gather((pl.len() - 1) // 10).first()
    rows = table.join(table.group_by(CALENDAR).agg(begin=early), on=CALENDAR, maintain_order="left")
    late = rows.filter(_ranks(rows, "first_session") - _ranks(rows, "begin") > sessions)
    return late.sort("first_session", "symbol")


def _ranks(table: pl.DataFrame, column: str) -> pl.Series:
    """The running number of each row's session among those of its calendar."""
    names = table[CALENDAR].cast(pl.String).unique().drop_nulls().sort()
    ranks = [
        segments(Clock.parse(name))
        .select(pl.lit(name).alias(CALENDAR), pl.col("session").unique(maintain_order=True).alias(column))
        .with_columns(rank=pl.int_range(pl.len(), dtype=pl.Int64))
        for name in names
    ]
    empty = pl.DataFrame(schema={CALENDAR: pl.String, column: pl.Date, "rank": pl.Int64})
    days = table.select(pl.col(CALENDAR).cast(pl.String), pl.col(column).cast(pl.Date))
    return days.join(pl.concat([empty, *ranks]), on=[CALENDAR, column], how="left", maintain_order="left")["rank"]
