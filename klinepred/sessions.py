"""In: a calendar name, trading hours. Out: the clock they make, and the stretches of trading by it."""

from __future__ import annotations

import difflib
import warnings
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal

import polars as pl

from klinepred.aliases import canonical
from klinepred.almanac import kept
from klinepred.errors import CalendarError
from klinepred.schema import BAR_MINUTES

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
        return str(_almanac(self).get_column("zone")[0])


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
    first, last = FIRST_DAY, _last_day()
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
    return _almanac(clock).drop("zone")


def _last_day() -> date:
    """To the first of a month, so that what is kept on the disk is good for as long."""
    return (datetime.now(UTC).date() + AHEAD).replace(day=1)


@lru_cache(maxsize=32)
def _almanac(clock: Clock) -> pl.DataFrame:
    """The columns of `segments` and `zone` (text, the venue's), from the disk where they are kept."""
    return kept(f"{clock} from {FIRST_DAY} to {_last_day()}", lambda: _work_out(clock))


def _work_out(clock: Clock) -> pl.DataFrame:
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
        .with_columns(zone=pl.lit(str(exchange.tz)))
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
