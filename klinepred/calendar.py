"""In: a calendar name, trading hours, bars. Out: sessions, the 5-minute grid they expect, each bar's place on it."""

from __future__ import annotations

import difflib
import warnings
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal
from zoneinfo import ZoneInfo

import polars as pl

from klinepred.aliases import canonical
from klinepred.errors import CalendarError
from klinepred.schema import BAR, BAR_MINUTES, BAR_US, CALENDAR, TS

Hours = Literal["regular", "extended"]

# Pre- and post-market trading of US equities (NYSE, Nasdaq, Cboe): 04:00 to 20:00 New York, on half days to 17:00.
EXTENDED: Final[dict[str, tuple[int, int, int]]] = {"XNYS": (4, 20, 17)}
FIRST_DAY: Final = date(1990, 1, 1)
AHEAD: Final = timedelta(days=3 * 366)


@dataclass(frozen=True)
class Clock:
    """By which sessions a symbol trades. `str(clock)` is the `calendar` of `Bars`: `XNYS`, `24/7`, `XNYS+extended`."""

    calendar: str
    hours: Hours = "regular"

    def __post_init__(self) -> None:
        object.__setattr__(self, "calendar", canonical(self.calendar))  # NYSE, NASDAQ and XNYS are one clock

    def __str__(self) -> str:
        return self.calendar if self.hours == "regular" else f"{self.calendar}+extended"

    @classmethod
    def parse(cls, text: str) -> Clock:
        """The clock whose `str` is `text`; whether it exists is found out at first use."""
        name = text.removesuffix("+extended")
        return cls(name, "regular" if name == text else "extended")

    @property
    def zone(self) -> str:
        """IANA name of the venue's time zone."""
        return str(_exchange(self.calendar).tz)


@lru_cache(maxsize=32)
def _exchange(name: str):  # type: ignore[no-untyped-def]  # exchange_calendars has no annotations
    import exchange_calendars as xc

    if name not in (names := xc.get_calendar_names(include_aliases=True)):
        near = difflib.get_close_matches(name.upper(), names, n=3, cutoff=0.5)
        raise CalendarError(
            f"calendar {name!r}",
            expected="a calendar of exchange_calendars, such as XNYS, XLON, XHKG, XSHG, CMES, 24/7",
            got=f"{name!r}, which it does not know",
            do=f"use --calendar with its market's code; near: {', '.join(near) or 'XNYS, 24/7'}",
        )
    first, last = FIRST_DAY, datetime.now(UTC).date() + AHEAD
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of pandas 3.1, raised inside exchange_calendars
        try:
            try:
                return xc.get_calendar(name, start=first.isoformat(), end=last.isoformat())
            except ValueError:  # its holidays are recorded for fewer years
                known = xc.get_calendar(name)
            low, high = known.bound_min(), known.bound_max()
            first, last = max(first, low.date()) if low else first, min(last, high.date()) if high else last
            return xc.get_calendar(name, start=first.isoformat(), end=last.isoformat())
        except (ValueError, NotImplementedError) as error:
            raise CalendarError(
                f"calendar {name!r}",
                expected="sessions from exchange_calendars",
                got=f"a failure inside it: {str(error)[:80]}",
                do="install other versions of exchange_calendars and pandas, or use another venue of the same hours",
            ) from error


@lru_cache(maxsize=32)
def segments(clock: Clock) -> pl.DataFrame:
    """Every stretch of uninterrupted trading that the calendar knows, one row each, in time order.

    Returns
    -------
    polars.DataFrame
        `session` (Date), `open`, `close` (Datetime us UTC; close exclusive), `first_bar` (Int32, index of the first
        bar within its session), `session_bars` (Int32, bars expected in the whole session), `first_slot` (Int64,
        running number of the first bar on the calendar's grid; consecutive slots = nothing missing between) and
        `segment` (Int32; rows without a market break between them share one, as all of 24/7 do). A lunch break makes
        two rows of one session.

    Raises
    ------
    CalendarError
        The calendar is not known, or has no extended hours.
    """
    exchange = _exchange(clock.calendar)
    table = exchange.schedule
    stamps = pl.DataFrame(
        {
            "session": pl.Series(table.index.to_numpy()).cast(pl.Date),
            **{
                name: pl.Series(table[name].dt.tz_convert(None).to_numpy())
                .cast(pl.Datetime("us"))
                .dt.replace_time_zone("UTC")
                for name in ("open", "close", "break_start", "break_end")
            },
        }
    )
    if clock.hours == "extended":
        stamps = _extend(stamps, clock, str(exchange.tz))
    whole = stamps.filter(pl.col("break_start").is_null()).select("session", "open", "close")
    broken = stamps.filter(pl.col("break_start").is_not_null())
    pieces = pl.concat(
        [
            whole,
            broken.select("session", "open", pl.col("break_start").alias("close")),
            broken.select("session", pl.col("break_end").alias("open"), "close"),
        ]
    ).sort("open")
    minutes = (pl.col("close") - pl.col("open")).dt.total_minutes()
    return (
        pieces.with_columns(bars=(minutes + BAR_MINUTES - 1) // BAR_MINUTES)
        .with_columns(
            first_bar=(pl.col("bars").cum_sum() - pl.col("bars")).over("session").cast(pl.Int32),
            session_bars=pl.col("bars").sum().over("session").cast(pl.Int32),
            first_slot=(pl.col("bars").cum_sum() - pl.col("bars")).cast(pl.Int64),
            segment=(pl.col("open") != pl.col("close").shift(1)).fill_null(True).cum_sum().cast(pl.Int32),
        )
        .drop("bars")
    )


def _extend(stamps: pl.DataFrame, clock: Clock, zone: str) -> pl.DataFrame:
    if clock.calendar not in EXTENDED:
        raise CalendarError(
            f"extended hours of {clock.calendar}",
            expected=f"--hours extended with one of {', '.join(sorted(EXTENDED))}",
            got=f"{clock.calendar}, whose pre- and post-market hours klinepred does not know",
            do="use --hours regular",
        )
    first, last, early = EXTENDED[clock.calendar]
    noon = pl.col("close").dt.convert_time_zone(zone)
    half = (noon.dt.hour().cast(pl.Int32) * 60 + noon.dt.minute()) < 16 * 60
    day = pl.col("session").cast(pl.Datetime("us"))

    def at(hour: pl.Expr) -> pl.Expr:
        return (day + pl.duration(hours=hour)).dt.replace_time_zone(zone).dt.convert_time_zone("UTC")

    return stamps.with_columns(open=at(pl.lit(first)), close=at(pl.when(half).then(early).otherwise(last)))


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


def expected_after(clock: Clock, ts: datetime, steps: int = 1) -> datetime:
    """Open of the bar that the calendar expects `steps` bars after the bar opening at `ts`.

    Raises
    ------
    CalendarError
        `ts` is no bar of this calendar, or the calendar ends before the answer.
    """
    here = place(pl.DataFrame({"ts": [ts], CALENDAR: [str(clock)]}, schema={"ts": TS, CALENDAR: pl.String}))
    slot = here["slot"][0]
    if slot is None:
        raise CalendarError(
            f"calendar {clock}",
            expected="the open of one of its bars",
            got=f"{ts:%Y-%m-%dT%H:%M:%SZ}, when the market is closed or no bar opens",
            do="pass the open of a stored bar",
        )
    piece = segments(clock).filter(pl.col("first_slot") <= slot + steps).tail(1)
    answer: datetime = piece["open"][0] + BAR * (slot + steps - int(piece["first_slot"][0]))
    if answer >= piece["close"][0]:
        raise CalendarError(
            f"calendar {clock}",
            expected=f"a bar after {ts:%Y-%m-%dT%H:%M:%SZ}",
            got=f"the end of the recorded calendar at {piece['close'][0]:%Y-%m-%d}",
            do="install a newer exchange_calendars",
        )
    return answer


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
