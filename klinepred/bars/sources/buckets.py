"""In: rows finer than five minutes, of one even spacing. Out: 5-minute rows counted from the open of the session."""

from __future__ import annotations

import polars as pl

from klinepred.bars.check import value_rules
from klinepred.bars.clean import CONFLICT, OUTSIDE, REASON, REJECT_SCHEMA
from klinepred.calendar import Clock, segments
from klinepred.schema import BAR_SCHEMA, BAR_US, PRICES


def add_up(rows: pl.DataFrame, seconds: int, clock: Clock) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    """Rows `seconds` apart to bars, rows that cannot be added in with their reasons, lines for the user.

    A bar takes the rows that END in it, that is after its open and not after its close; the close of trading cuts the
    last row short. So a bar never holds what happened after its close. Where `seconds` divide five minutes, no row
    lies across an edge; elsewhere a bar may begin before its open.

    Parameters
    ----------
    rows
        `BAR_SCHEMA`, sorted by symbol and ts; stamps are the opens of the rows.
    """
    stamps = _places(rows, seconds, clock)
    whole = rows.unique(maintain_order=True)
    judged = whole.join(stamps, on="ts", how="left", maintain_order="left").with_columns(_reason(seconds).alias(REASON))
    torn = pl.col(REASON).is_null() & (pl.len().over("symbol", "ts", pl.col(REASON).is_null()) > 1)
    judged = judged.with_columns(pl.when(torn).then(pl.lit(CONFLICT)).otherwise(REASON).alias(REASON))
    good = judged.filter(pl.col(REASON).is_null())
    bars = good.group_by("symbol", pl.col("_bar").alias("ts"), maintain_order=True).agg(
        open=pl.col("open").first(),
        high=pl.col("high").max(),
        low=pl.col("low").min(),
        close=pl.col("close").last(),
        volume=pl.col("volume").sum(),
        parts=pl.len(),
        wanted=pl.col("_wanted").first(),
    )
    lines = [f"{span(seconds)} rows made into 5-minute bars: {rows.height:,} rows, {bars.height:,} bars"]
    if whole.height < rows.height:
        lines.append(f"{rows.height - whole.height:,} repeated {span(seconds)} rows counted once")
    blank = judged.filter(pl.col(REASON) == "").height
    if blank:
        lines.append(f"{blank:,} {span(seconds)} rows without prices left out")
    across = good.filter(pl.col("ts") < pl.col("_bar"))
    if across.height:
        early = across.select((pl.col("_bar") - pl.col("ts")).dt.total_seconds().max()).item()
        lines.append(
            f"{across.height:,} {span(seconds)} rows lie across two bars and count where they end: "
            f"a bar may begin up to {early / 60:g} min early"
        )
    last = pl.int_range(pl.len()).over("symbol") == pl.len().over("symbol") - 1
    short = bars.filter(pl.col("parts") < pl.col("wanted"), ~last).height
    if short:
        lines.append(f"bars made of fewer {span(seconds)} rows than fit in them, no row being there: {short:,}")
    tails = bars.group_by("symbol", maintain_order=True).last().filter(pl.col("parts") < pl.col("wanted"))
    lines.extend(
        f"{symbol}: the last bar {ts:%Y-%m-%d %H:%MZ} is made of {parts} of {wanted} rows"
        for symbol, ts, parts, wanted in tails.select("symbol", "ts", "parts", "wanted").iter_rows()
    )
    rejects = judged.filter(pl.col(REASON).is_not_null() & (pl.col(REASON) != ""))
    return bars.select(*BAR_SCHEMA), rejects.select(*REJECT_SCHEMA), lines


def _places(rows: pl.DataFrame, seconds: int, clock: Clock) -> pl.DataFrame:
    """Each stamp once: `_inside` a session, `_even` on the grid of its rows, `_bar` it counts in, `_wanted` rows of
    that bar when none is missing."""
    step = seconds * 1_000_000
    stretches = segments(clock).select(pl.col("open").alias("_open"), pl.col("close").alias("_end"))
    past, phase = pl.col("_past"), pl.col("_phase")
    stamps = (
        rows.select(pl.col("ts").unique())
        .drop_nulls()
        .sort("ts")
        .join_asof(stretches, left_on="ts", right_on="_open", strategy="backward", check_sortedness=False)
        .with_columns(
            _inside=(pl.col("ts") < pl.col("_end")).fill_null(False),
            _past=(pl.col("ts") - pl.col("_open")).dt.total_microseconds(),
            _length=(pl.col("_end") - pl.col("_open")).dt.total_microseconds(),
        )
    )
    if BAR_US % step:
        # such rows are counted from the open of the session by some vendors, from midnight by others
        stamps = stamps.with_columns(
            _phase=(past % step).filter("_inside").mode().min().over(pl.col("_open").dt.time()).fill_null(0)
        )
    else:
        stamps = stamps.with_columns(_phase=pl.lit(0, pl.Int64))
    end = pl.min_horizontal(past + step, "_length")
    first = (end - 1) // BAR_US * BAR_US
    upto = pl.min_horizontal(pl.col("_first") + BAR_US, "_length")
    ends = ((upto - phase) // step).clip(0) - ((pl.col("_first") - phase) // step).clip(0)
    cut = (upto == pl.col("_length")) & ((upto - phase) % step != 0)
    return (
        stamps.with_columns(_first=first)
        .with_columns(
            _even=past % step == phase,
            _bar=pl.col("_open") + pl.duration(microseconds=pl.col("_first")),
            _wanted=ends + cut,
        )
        .select("ts", "_inside", "_even", "_bar", "_wanted")
    )


def _reason(seconds: int) -> pl.Expr:
    """Why a row cannot be added in: null = it can; empty = it has no price and is left out."""
    empty = pl.all_horizontal((pl.col(name).is_null() | pl.col(name).is_nan()) for name in PRICES)
    reason = (
        pl.when(pl.col("ts").is_null())
        .then(pl.lit("the time stamp cannot be read"))
        .when(empty)
        .then(pl.lit(""))
        .when(~pl.col("_inside"))
        .then(pl.lit(OUTSIDE))
        .when(~pl.col("_even"))
        .then(pl.lit(f"not on the {span(seconds)} grid"))
    )
    for text, broken in value_rules():
        reason = reason.when(broken).then(pl.lit(text))
    return reason


def span(seconds: int) -> str:
    """300 to `5-minute`."""
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % size == 0:
            return f"{seconds // size}-{unit}"
    return f"{seconds}-second"
