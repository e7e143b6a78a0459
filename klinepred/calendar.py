"""In: a clock, bars. Out: the 5-minute grid it expects, each bar's place on it, the next bar."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import polars as pl

from klinepred.errors import CalendarError
from klinepred.schema import BAR, BAR_MINUTES, BAR_US, CALENDAR, TS
from klinepred.sessions import Clock, Hours, segments

__all__ = [
    "Clock",
    "Hours",
    "covered",
    "expected_after",
    "grid",
    "known_span",
    "newest_finished",
    "place",
    "segments",
    "zone_of",
]


def place(bars: pl.DataFrame) -> pl.DataFrame:
    """Say for each row where on its calendar's grid it lies.

    Parameters
    ----------
    bars
        At least `ts` (Datetime us UTC) and `calendar` (text of a `Clock`); any order, which is kept.

    Returns
    -------
    polars.DataFrame
        `bars` with `session` (Date), `bar` (Int32, 0 = first bar of the session), `session_bars` (Int32),
        `slot` (Int64: two rows are neighbours with nothing missing between iff their slots differ by one) and
        `segment` (Int32: rows of one segment have no market break between them). All are null where the market is
        closed or `ts` is off the grid.
    """
    # stamps repeat over symbols: each is looked up once
    names = bars.get_column(CALENDAR).unique().to_list()
    if len(names) == 1 and names[0] is not None:
        stamps = bars.select(pl.col("ts").unique()).drop_nulls().sort("ts")
        return bars.join(_place(stamps, Clock.parse(names[0])), on="ts", how="left", maintain_order="left")
    stamps = bars.select(CALENDAR, "ts").unique().drop_nulls()
    parts = stamps.sort("ts").group_by(CALENDAR) if stamps.height else [((Clock("24/7"),), stamps)]
    places = pl.concat([_place(part, Clock.parse(str(text))) for (text,), part in parts])
    return bars.join(places, on=[CALENDAR, "ts"], how="left", maintain_order="left")


def _place(stamps: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    if stamps.height:
        covered(clock, stamps["ts"][0], stamps["ts"][-1])
    pieces = segments(clock).rename({"session": "_session", "session_bars": "_session_bars", "segment": "_segment"})
    joined = stamps.join_asof(pieces, left_on="ts", right_on="open", check_sortedness=False)
    past = (pl.col("ts") - pl.col("open")).dt.total_microseconds()
    inside = pl.when((pl.col("ts") < pl.col("close")) & (past % BAR_US == 0))
    return joined.select(
        *stamps.columns,
        session=inside.then("_session"),
        bar=inside.then(pl.col("first_bar") + (past // BAR_US).cast(pl.Int32)),
        session_bars=inside.then("_session_bars"),
        slot=inside.then(pl.col("first_slot") + past // BAR_US),
        segment=inside.then("_segment"),
    )


def known_span(clock: Clock) -> tuple[datetime, datetime]:
    """From when until when (exclusive) the calendar can tell a bar, with a week's grace on either side."""
    table = segments(clock)
    return table["open"][0] - timedelta(days=7), table["close"][-1] + timedelta(days=7)


def covered(clock: Clock, low: datetime, high: datetime) -> None:
    """CalendarError unless the calendar knows all of `low` to `high`."""
    first, last = known_span(clock)
    if low < first or high >= last:
        raise CalendarError(
            f"calendar {clock}",
            expected=f"bars between {first:%Y-%m-%d} and {last:%Y-%m-%d}, the span its holidays are recorded for",
            got=f"bars from {low:%Y-%m-%d %H:%M} to {high:%Y-%m-%d %H:%M} UTC",
            do="check the time stamps (unit, zone) of the source, or use another calendar",
        )


def grid(clock: Clock, start: datetime, end: datetime) -> pl.DataFrame:
    """Every bar the calendar expects with `start <= ts < end`.

    Returns
    -------
    polars.DataFrame
        `ts` (Datetime us UTC, bar opens), `session` (Date), `bar` (Int32), `slot` (Int64), in time order.
    """
    pieces = segments(clock).filter((pl.col("close") > start) & (pl.col("open") < end))
    return (
        pieces.with_columns(ts=pl.datetime_ranges("open", "close", interval=BAR, closed="left"))
        .explode("ts", empty_as_null=False)
        .with_columns(_index=((pl.col("ts") - pl.col("open")).dt.total_minutes() // BAR_MINUTES))
        .select(
            pl.col("ts").cast(TS),
            "session",
            bar=(pl.col("first_bar") + pl.col("_index")).cast(pl.Int32),
            slot=pl.col("first_slot") + pl.col("_index"),
        )
        .filter((pl.col("ts") >= start) & (pl.col("ts") < end))
    )


def expected_after(clock: Clock, ts: pl.Series, steps: int = 1) -> pl.Series:
    """Opens of the bars that the calendar expects `steps` bars after those opening at `ts`, in its order.

    Raises CalendarError where a stamp is no bar of this calendar, or the calendar ends before the answer.
    """
    spots = place(pl.DataFrame({"ts": ts.cast(TS)}).with_columns(pl.lit(str(clock)).alias(CALENDAR)))
    if (off := spots.filter(pl.col("slot").is_null())).height:
        raise CalendarError(
            f"calendar {clock}",
            expected="the open of one of its bars",
            got=f"{off['ts'][0]:%Y-%m-%dT%H:%M:%SZ}, when the market is closed or no bar opens",
            do="pass the open of a stored bar",
        )
    pieces = segments(clock).select("open", "close", "first_slot")
    wanted = spots.select("ts", slot=pl.col("slot") + steps).with_row_index("_row")
    found = wanted.sort("slot").join_asof(pieces, left_on="slot", right_on="first_slot").sort("_row")
    answer = found.select("ts", "close", next=pl.col("open") + BAR * (pl.col("slot") - pl.col("first_slot")))
    if (late := answer.filter(pl.col("next") >= pl.col("close"))).height:
        raise CalendarError(
            f"calendar {clock}",
            expected=f"a bar after {late['ts'][0]:%Y-%m-%dT%H:%M:%SZ}",
            got=f"the end of the recorded calendar at {late['close'][0]:%Y-%m-%d}",
            do="install a newer exchange_calendars",
        )
    return answer["next"]


def newest_finished(clock: Clock, now: datetime) -> datetime | None:
    """Open of the newest bar that is finished at `now` (its close is not after `now`); None before the calendar."""
    pieces = segments(clock).filter(pl.col("open") + BAR <= now).tail(1)
    if pieces.is_empty():
        return None
    start, close = pieces["open"][0], pieces["close"][0]
    bars = min((now - start) // BAR, -((start - close) // BAR))
    answer: datetime = start + BAR * (bars - 1)
    return answer


def zone_of(name: str) -> ZoneInfo:
    """The IANA zone `name`.

    Raises
    ------
    CalendarError
        There is no such zone.
    """
    try:
        pl.Series([], dtype=pl.Datetime("us")).dt.replace_time_zone(name)  # it knows no posixrules, the disk may
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, pl.exceptions.ComputeError) as error:
        raise CalendarError(
            f"time zone {name!r}",
            expected="an IANA name such as America/New_York or UTC",
            got=repr(name),
            do="use --tz with the zone the time stamps were written in",
        ) from error
