"""In: a column of time stamps as a file writes them. Out: the same as UTC microseconds, and what was assumed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

import polars as pl

from klinepred.bars.sources.zones import Stamps, localise, split_zone
from klinepred.errors import SourceError
from klinepred.schema import TS

DATE: Final = r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{4}|\d{8})"
CLOCK: Final = r"(\d{1,2}:\d{1,2}(?::\d{1,2})?(?:\.\d+)?(?: ?[AaPp][Mm])?|\d{6}|\d{4})"
STAMP: Final = re.compile(rf"{DATE}(?:([T ]){CLOCK}( ?(?:Z|UTC|GMT)| ?[+-]\d{{2}}:?\d{{2}}| ?[+-]\d{{2}})?)?", re.ASCII)
SHORT_YEAR: Final = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2}(?!\d)", re.ASCII)
EPOCH: Final = re.compile(r"\d{9,11}(\.\d+)?|\d{13}|\d{16}|\d{18,19}", re.ASCII)
COMPACT: Final = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S", 17: "%Y%m%d%H%M%S%3f"}
TRIES: Final = 6
FIRST_US, LAST_US = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000 for year in (1000, 9000))


def read_stamps(
    column: pl.Series,
    *,
    time: pl.Series | None,
    symbol: pl.Series | None,
    tz: str | None,
    zone: str,
    where: str,
    whose: str = "the zone of the calendar",
) -> Stamps:
    """Time stamps of whatever type to UTC.

    Parameters
    ----------
    column, time
        The stamp; or the day, with the time of day apart.
    symbol
        Symbol of each row, to tell the two runs of a repeated local hour apart; None = one symbol.
    tz, zone
        Zone of stamps without one, as the user gave it; and the vendor's or calendar's (`whose`), used (and said) when
        `tz` is None.

    Raises
    ------
    SourceError
        Stamps are in a form that cannot be read, mix forms with and without a zone, or do not say which of two
        numbers is the month.
    CalendarError
        `tz` is no zone.
    """
    if time is not None:
        column = _join(column, time)
    if column.dtype == pl.Date:
        column = column.cast(pl.Datetime("us"))
    if isinstance(column.dtype, pl.Datetime):
        if column.dtype.time_zone is not None:
            return _told(column.cast(TS), tz)
        return localise(_of_our_time(column.cast(pl.Datetime("us"))), symbol, tz=tz, zone=zone, whose=whose)
    if column.dtype.is_integer():
        digits = set(column.drop_nulls().head(1000).cast(pl.String).str.len_chars().unique())
        if not (digits <= set(COMPACT) and digits):
            return _told(_epoch(column, where), tz)
        column = column.cast(pl.String)
    elif column.dtype.is_float():
        return _told(_epoch(column, where), tz)
    if column.dtype != pl.String:
        raise SourceError(
            f"{where}: column {column.name!r}",
            expected="time stamps as text, dates or epoch numbers",
            got=str(column.dtype),
            do="write the stamps as ISO 8601",
        )
    text, named = split_zone(column.str.strip_chars(), where=where)
    if named is not None:
        said = localise(_of_our_time(_parse(text, where)[0]), symbol, tz=named, zone=zone, whose=whose)
        more = () if tz is None else (f"--tz {tz} is not used: the time stamps name {named}",)
        return Stamps(said.ts, (*said.remarks, *more), f"{named} (named in the stamps)")
    seen = text.drop_nulls().head(200).to_list()
    if seen and all(map(EPOCH.fullmatch, seen)):
        whole = text.cast(pl.Int64, strict=False)
        numbers = whole if whole.null_count() == text.null_count() else text.cast(pl.Float64, strict=False)
        return _told(_epoch(numbers, where), tz)
    naive, aware = _parse(text, where)
    if aware is not None:
        return _told(aware, tz)
    return localise(_of_our_time(naive), symbol, tz=tz, zone=zone, whose=whose)


def _told(ts: pl.Series, tz: str | None) -> Stamps:
    lines = () if tz is None else (f"--tz {tz} is not used: the time stamps say their zone themselves",)
    return Stamps(_of_our_time(ts), lines, "as the stamps say themselves")


def _of_our_time(ts: pl.Series) -> pl.Series:
    """Stamps of the years 1000 to 8999; others are none, and Python could not even show those past 9999."""
    micros = ts.to_physical()
    wild = (micros < FIRST_US) | (micros >= LAST_US)
    return ts.set(wild, None) if wild.any() else ts


def _join(day: pl.Series, time: pl.Series) -> pl.Series:
    """A day and a time of day as one text."""
    days = day.cast(pl.String).str.strip_chars()
    if day.dtype.is_temporal():
        days = days.str.head(10)
    times = time.cast(pl.String).str.strip_chars()
    if time.dtype.is_integer():
        times = times.str.zfill(6)
    elif time.dtype == pl.Time:
        times = times.str.head(8)
    return days + " " + times


def _epoch(numbers: pl.Series, where: str) -> pl.Series:
    """Numbers since 1970: seconds, milli-, micro- or nanoseconds, decided value by value from their size."""
    name = numbers.name
    if numbers.dtype.is_float():
        exact = pl.when(pl.col(name).abs() < 1e11).then((pl.col(name) * 1e6).round())
        frame = numbers.to_frame().select(exact.otherwise(pl.col(name)).cast(pl.Int64, strict=False).alias(name))
        seconds = numbers.abs() < 1e11
    else:
        frame = numbers.cast(pl.Int64, strict=False).to_frame()
        seconds = pl.repeat(False, len(numbers), eager=True)
    size = pl.col(name).abs()
    micros = (
        pl.when(pl.Series(seconds))
        .then(pl.col(name))
        .when(size < 100_000_000_000)
        .then(pl.col(name) * 1_000_000)
        .when(size < 100_000_000_000_000)
        .then(pl.col(name) * 1000)
        .when(size < 100_000_000_000_000_000)
        .then(pl.col(name))
        .otherwise(pl.col(name) // 1000)
    )
    small = frame.select((size < 100_000_000) & (size > 0)).to_series().sum() if not numbers.dtype.is_float() else 0
    if small and small * 2 > len(frame):
        raise SourceError(
            f"{where}: column {name!r}",
            expected="stamps since 1970 with 10 (s), 13 (ms), 16 (us) or 19 (ns) digits",
            got=f"numbers like {numbers.drop_nulls()[0]}",
            do="write the stamps as ISO 8601",
        )
    return frame.select(micros.cast(pl.Datetime("us")).dt.replace_time_zone("UTC").alias(name)).to_series()


def _parse(text: pl.Series, where: str) -> tuple[pl.Series, pl.Series | None]:
    """Text to naive stamps, or to aware ones in UTC as the second part; a text that repeats is read once."""
    once = text.unique(maintain_order=True)
    if len(once) * 2 > len(text):
        return _parse_each(text, where)
    naive, aware = _parse_each(once, where)
    read = pl.DataFrame({"text": once, "naive": naive, "aware": naive if aware is None else aware})
    rows = pl.DataFrame({"text": text}).join(read, on="text", how="left", nulls_equal=True, maintain_order="left")
    stamps = [rows.get_column(part).alias(text.name) for part in ("naive", "aware")]
    return stamps[0], None if aware is None else stamps[1]


def _parse_each(text: pl.Series, where: str) -> tuple[pl.Series, pl.Series | None]:
    text = text.str.replace_all(r"\s+", " ") if bool(text.str.contains(r"\s\s|\t").any()) else text
    naive = pl.Series(text.name, [None], dtype=pl.Datetime("us")).new_from_index(0, len(text))
    aware: pl.Series | None = None
    left = text
    for _ in range(TRIES):
        sample = left.drop_nulls().head(1)
        form = _form(sample[0], text, where) if len(sample) else None
        if form is None:
            break
        pattern, zoned = form
        got = _to_datetime(left, pattern, zoned=zoned)
        if got.null_count() == len(got):
            break
        if zoned:
            aware = got if aware is None else aware.zip_with(aware.is_not_null(), got)
        else:
            naive = naive.zip_with(naive.is_not_null(), got)
        left = left.zip_with(got.is_null(), pl.Series([None], dtype=pl.String).new_from_index(0, len(left)))
    unread = len(left) - left.null_count()
    if unread and unread * 2 > len(text):
        raise SourceError(
            f"{where}: column {text.name!r}",
            expected="time stamps such as 2025-08-28T13:30:00Z, 2025-08-28 09:30:00 or epoch numbers",
            got=repr(left.drop_nulls()[0]),
            do="write the stamps as ISO 8601",
        )
    if aware is not None and naive.null_count() < len(naive):
        raise SourceError(
            f"{where}: column {text.name!r}",
            expected="time stamps that all say their zone, or none",
            got=f"{len(naive) - naive.null_count():,} of {len(naive):,} without one",
            do="write the stamps in one form",
        )
    return naive, aware


def _to_datetime(text: pl.Series, pattern: str, *, zoned: bool) -> pl.Series:
    if zoned and pattern.endswith("%z"):
        text = text.str.replace(r" ?([+-]\d{2})$", "${1}:00").str.replace(r" ([+-])", "${1}")
        return text.str.to_datetime(pattern, time_unit="us", strict=False).cast(TS)
    if zoned:
        text = text.str.replace(r" ?(Z|UTC|GMT)$", "")
        return text.str.to_datetime(pattern, time_unit="us", strict=False).dt.replace_time_zone("UTC")
    return text.str.to_datetime(pattern, time_unit="us", strict=False)


def _form(sample: str, text: pl.Series, where: str) -> tuple[str, bool] | None:
    """The strptime pattern `sample` is written in, and whether it says its zone; None if it is no stamp."""
    if sample.isascii() and sample.isdigit() and len(sample) in COMPACT:
        return COMPACT[len(sample)], False
    match = STAMP.fullmatch(sample)
    if match is None and SHORT_YEAR.match(sample):
        raise SourceError(
            f"{where}: column {text.name!r}",
            expected="years of four digits",
            got=repr(sample),
            do="write the stamps as YYYY-MM-DD HH:MM",
        )
    if match is None:
        return None
    date, gap, clock, offset = match.groups()
    pattern = _date_form(date, text, where)
    if clock is None:
        return pattern, False
    pattern += gap + _clock_form(clock)
    if offset is None:
        return pattern, False
    return (pattern, True) if offset.strip().isalpha() else (pattern + "%z", True)


def _date_form(date: str, text: pl.Series, where: str) -> str:
    if date.isdigit():
        return "%Y%m%d"
    sign = next(char for char in date if not char.isdigit())
    if re.match(r"\d{4}", date):
        return f"%Y{sign}%m{sign}%d"
    if sign == ".":
        return "%d.%m.%Y"
    parts = text.str.extract_groups(r"^([0-9]{1,2})[/-]([0-9]{1,2})[/-][0-9]{4}").struct.unnest()
    first, second = (int(str(parts[name].cast(pl.Int64).max() or 0)) for name in ("1", "2"))
    if (first > 12) == (second > 12):
        raise SourceError(
            f"{where}: column {text.name!r}",
            expected="dates that show which number is the month",
            got=f"{date!r}, and no day above the 12th that would tell"
            if first <= 12
            else "both numbers above 12 in places",
            do="write the dates as YYYY-MM-DD",
        )
    return f"%d{sign}%m{sign}%Y" if first > 12 else f"%m{sign}%d{sign}%Y"


def _clock_form(clock: str) -> str:
    if clock.isdigit():
        return "%H%M%S" if len(clock) == 6 else "%H%M"
    bare = re.sub(r" ?[AaPp][Mm]$", "", clock)
    seconds = ":%S" if bare.count(":") == 2 else ""
    seconds += "%.f" if "." in bare else ""
    if bare == clock:
        return f"%H:%M{seconds}"
    return f"%I:%M{seconds}{' ' if ' ' in clock else ''}%p"
