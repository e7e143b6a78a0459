"""In: time stamps without an offset, or with the name of a zone. Out: `Stamps` in UTC, and what was assumed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import polars as pl

from klinepred.calendar import zone_of
from klinepred.errors import SourceError
from klinepred.schema import TS

NAMED: Final = r" ([A-Za-z]+/[A-Za-z_]+(?:/[A-Za-z_]+)?)$"


@dataclass(frozen=True)
class Stamps:
    """`ts` in UTC (null where unreadable or never shown by a clock), lines for the user, the zone and who said it."""

    ts: pl.Series
    remarks: tuple[str, ...]
    zone: str


def split_zone(text: pl.Series, *, where: str) -> tuple[pl.Series, str | None]:
    """`20260105 09:30:00 US/Eastern` to `20260105 09:30:00` and `US/Eastern`; None where the stamps name no zone.

    Raises
    ------
    SourceError
        Stamps name different zones, or some name none.
    """
    seen = text.drop_nulls().head(1)
    if not len(seen) or re.search(NAMED, seen[0]) is None:
        return text, None
    names = text.str.extract(NAMED)
    every = sorted(names.drop_nulls().unique())
    bare = int((names.is_null() & text.is_not_null()).sum())
    if len(every) > 1 or bare:
        raise SourceError(
            f"{where}: column {text.name!r}",
            expected="one zone for all time stamps",
            got=", ".join(every[:4]) + (f", and {bare:,} stamps without one" if bare else ""),
            do="write the stamps with an offset such as -05:00",
        )
    return text.str.replace(NAMED, ""), every[0]


def localise(naive: pl.Series, symbol: pl.Series | None, *, tz: str | None, zone: str, whose: str) -> Stamps:
    """Stamps without a zone, read by `tz` or else by `zone`."""
    name = tz or zone
    zone_of(name)
    lines = [] if tz else [f"time stamps without a zone are read as {name}, {whose} (--tz says another)"]
    source = f"{name} ({'--tz' if tz else whose})"
    early, late = (
        naive.dt.replace_time_zone(name, ambiguous=which, non_existent="null").dt.convert_time_zone("UTC")
        for which in ("earliest", "latest")
    )
    skipped = naive.is_not_null() & early.is_null()
    if skipped.any():
        lines.append(
            f"{skipped.sum():,} stamps that no clock in {name} shows (spring change), first {naive.filter(skipped)[0]}"
        )
    twice = (early != late).fill_null(False)
    if not twice.any():
        return Stamps(early.cast(TS), tuple(lines), source)
    # An hour that the clock shows twice: of two equal stamps of a symbol the first is the earlier one. A stamp that
    # comes only once does not say which it is.
    rows = pl.DataFrame({"naive": naive, "early": early, "late": late, "twice": twice})
    rows = rows.with_columns(symbol if symbol is not None else pl.lit("").alias("symbol"))
    rows = rows.rename({rows.columns[-1]: "symbol"}).with_columns(
        run=pl.col("naive").cum_count().over("symbol", "naive"), runs=pl.len().over("symbol", "naive")
    )
    ts = rows.select(
        pl.when(~pl.col("twice"))
        .then("early")
        .when(pl.col("runs") == 2)
        .then(pl.when(pl.col("run") == 1).then("early").otherwise("late"))
        .alias(naive.name)
    ).to_series()
    unclear = int((twice & ts.is_null()).sum())
    if unclear:
        lines.append(
            f"{unclear:,} stamps in the hour that clocks in {name} show twice: left out, they do not say which"
        )
    return Stamps(ts.cast(TS), tuple(lines), source)
