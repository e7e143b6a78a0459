"""In: raw rows of a delivery. Out: good bars on the grid, rows set aside with a reason each, and the counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import polars as pl

from klinepred.bars.check import symbol_is_odd, value_rules
from klinepred.bars.slots import locate
from klinepred.calendar import Clock, covered, known_span
from klinepred.schema import BAR, BAR_SCHEMA, PRICES

REASON: Final = "reason"
REJECT_SCHEMA: Final = {**BAR_SCHEMA, REASON: pl.String()}
OUTSIDE: Final = "outside the trading sessions"
OFF_GRID: Final = "not on the 5-minute grid"
LISTED: Final = 20
"""So many stamps of empty and unfinished rows of a symbol are listed; the others are counted."""
CONFLICT: Final = "two rows of one bar that differ"


@dataclass(frozen=True)
class Cleaned:
    """What became of raw rows; every row is in exactly one place.

    Attributes
    ----------
    bars
        `BAR_SCHEMA` and `month` (text, 2025-06) and `slot` (Int64): sorted by symbol and ts, unique, good.
    rejects
        `REJECT_SCHEMA`: rows for the quarantine, each with its reason.
    counts
        A row per symbol: `received`, `duplicates` (exact repeats dropped), `empty` (rows without any price), `held`
        (bars not finished at `now`), `zero_volume` (good bars with volume 0), `first_slot`, `last_slot` (span of
        finished rows on the grid, empty and impossible ones included), `held_ts`, `empty_ts` (lists: the first such
        stamps, at most `LISTED`).
    """

    bars: pl.DataFrame
    rejects: pl.DataFrame
    counts: pl.DataFrame


def clean(frame: pl.DataFrame, *, clock: Clock, now: datetime) -> Cleaned:
    """Sort rows into bars, quarantine, duplicates, empty and unfinished ones. Nothing is filled, nothing changed.

    Parameters
    ----------
    frame
        `BAR_SCHEMA`, any order, anything in it.
    clock
        The calendar that says which stamps are bars.
    now
        A bar is finished when `ts + 5 min <= now`; later ones are held back, not stored.

    Raises
    ------
    CalendarError
        Most stamps lie outside the years the calendar knows: a wrong unit or zone. A few are set aside like any row
        outside the sessions.
    """
    low, high = known_span(clock)
    near = (pl.col("ts") >= low) & (pl.col("ts") < high)
    if frame.select((~near).sum() * 2 > pl.col("ts").count()).item():
        span = frame.select(low=pl.col("ts").min(), high=pl.col("ts").max()).row(0)
        covered(clock, *span)  # raises
    place = locate(frame.get_column("ts"), clock)
    rows = frame.hstack(place).lazy().with_columns(held=(pl.col("ts") > now - BAR) & near)
    empty = pl.all_horizontal((pl.col(name).is_null() | pl.col(name).is_nan()) for name in PRICES)
    rules = [
        ("no possible name of a symbol", symbol_is_odd()),
        ("the time stamp cannot be read", pl.col("ts").is_null()),
        ("", empty),
        ("", pl.col("held")),
        (OFF_GRID, pl.col("slot").is_null() & pl.col("in_session")),
        (OUTSIDE, pl.col("slot").is_null()),
        *value_rules(),
    ]
    chain = pl.when(rules[0][1]).then(pl.lit(0, pl.Int8))
    for number, (_, broken) in enumerate(rules[1:], start=1):
        chain = chain.when(broken).then(pl.lit(number, pl.Int8))  # type: ignore[assignment]
    judged = rows.with_columns(_rule=chain.otherwise(pl.lit(-1, pl.Int8))).collect()
    judged = judged.rechunk()  # columns cut into pieces, each at other rows, would cost a copy at every later step

    texts = [text for text, _ in rules]
    some = bool((judged["_rule"] >= 0).any())
    bad = judged.filter(pl.col("_rule") >= 0) if some else judged.clear()
    rejects = bad.filter(~pl.col("_rule").is_in([2, 3])).select(
        *BAR_SCHEMA, pl.col("_rule").replace_strict(range(len(texts)), texts, return_dtype=pl.String).alias(REASON)
    )
    good = (judged.filter(pl.col("_rule") < 0) if bad.height else judged).select(*BAR_SCHEMA, "month", "slot")
    good, repeats, conflicts = _unique(good)
    counts = _counts(judged, repeats=repeats, good=good)
    return Cleaned(bars=good, rejects=pl.concat([rejects, conflicts]).sort("symbol", "ts", REASON), counts=counts)


def is_sorted(frame: pl.DataFrame) -> bool:
    """Whether rows come by symbol and strictly rising ts, so that none needs sorting or is there twice."""
    same = pl.col("symbol") == pl.col("symbol").shift(1)
    after = (pl.col("symbol") > pl.col("symbol").shift(1)) | (same & (pl.col("ts") > pl.col("ts").shift(1)))
    return all(bool(part.select(after.slice(1).fill_null(False).all()).item()) for part in pieces(frame))


def pieces(frame: pl.DataFrame, rows: int = 1_000_000) -> Iterator[pl.DataFrame]:
    """`frame` in slices without a copy; each begins with the last row of the one before."""
    for start in range(0, max(frame.height - 1, 1), rows):
        yield frame.slice(start, rows + 1)


def _unique(good: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """`good` sorted and without repeats; repeats dropped per symbol; rows of one bar that differ."""
    none = pl.DataFrame(schema=REJECT_SCHEMA)
    if is_sorted(good):
        return good, pl.DataFrame(schema={"symbol": pl.String, "duplicates": pl.UInt32}), none
    good = good.sort("symbol", "ts", maintain_order=True)
    here = (pl.col("symbol") == pl.col("symbol").shift(1)) & (pl.col("ts") == pl.col("ts").shift(1))
    again = good.filter(here.fill_null(False) | here.shift(-1).fill_null(False))
    if again.is_empty():
        return good, pl.DataFrame(schema={"symbol": pl.String, "duplicates": pl.UInt32}), none
    distinct = again.unique(maintain_order=True)
    torn = distinct.filter(pl.len().over("symbol", "ts") > 1)
    repeats = (
        again.group_by("symbol")
        .agg(duplicates=pl.len())
        .join(distinct.group_by("symbol").agg(kept=pl.len()), on="symbol")
        .select("symbol", duplicates=(pl.col("duplicates") - pl.col("kept")).cast(pl.UInt32))
    )
    whole = good.filter(~here.fill_null(False)).join(torn, on=["symbol", "ts"], how="anti", maintain_order="left")
    return whole, repeats, torn.select(*BAR_SCHEMA, pl.lit(CONFLICT).alias(REASON))


def _counts(judged: pl.DataFrame, *, repeats: pl.DataFrame, good: pl.DataFrame) -> pl.DataFrame:
    rule = pl.col("_rule")
    slot = pl.col("slot").filter(rule != 3) if bool((judged["_rule"] == 3).any()) else pl.col("slot")
    rows = judged.group_by("symbol").agg(received=pl.len(), first_slot=slot.min(), last_slot=slot.max())
    odd = judged.filter(rule.is_in([2, 3])) if good.height < judged.height else judged.clear()
    listed = odd.group_by("symbol").agg(
        empty=(rule == 2).sum(),
        held=(rule == 3).sum(),
        empty_ts=pl.col("ts").filter(rule == 2).bottom_k(LISTED),
        held_ts=pl.col("ts").filter(rule == 3).bottom_k(LISTED),
    )
    counts = rows.join(listed, on="symbol", how="left", nulls_equal=True).with_columns(
        pl.col("empty", "held").fill_null(0),
        *(pl.col(name).fill_null(pl.lit([], listed.schema[name])) for name in ("empty_ts", "held_ts")),
    )
    zero = good.filter(pl.col("volume") == 0.0).group_by("symbol").agg(zero_volume=pl.len())
    return (
        counts.join(repeats, on="symbol", how="left")
        .join(zero, on="symbol", how="left")
        .with_columns(pl.col("duplicates", "zero_volume").fill_null(0))
        .sort("symbol")
    )
