"""In: bars received, stored, set aside before. Out: bars to store; isolated errors set aside; earlier ones freed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import polars as pl

from klinepred.bars.isolated import FACTOR, NEAR, find_isolated
from klinepred.schema import BAR_SCHEMA

CONTEXT: Final = timedelta(days=7)
"""So far around the received bars stored ones are looked at. Verdicts fall within `NEAR` of the received ones; the rest
lets those see all that they depend on."""
REJECT_COLUMNS: Final = (*BAR_SCHEMA, "reason")


@dataclass(frozen=True)
class Sifted:
    """What a look at the neighbours changed.

    Attributes
    ----------
    bars
        Received bars that stay, with all their columns.
    rejects
        Received bars whose price is an isolated error, with `reason`.
    confirmed
        Bars that were set aside before for their price, and that their neighbours now confirm; `BAR_SCHEMA`.
    withdrawn
        Stored bars that turn out to be isolated errors beside others, with `reason`.
    """

    bars: pl.DataFrame
    rejects: pl.DataFrame
    confirmed: pl.DataFrame
    withdrawn: pl.DataFrame


def sift(received: pl.DataFrame, *, stored: pl.DataFrame, waiting: pl.DataFrame) -> Sifted:
    """Judge received bars by all bars known around them, and those set aside before once more.

    The verdict depends on the bars known, not on the order they came in: the same bars in one file or in many end in
    the same store.

    Parameters
    ----------
    received
        Good bars, sorted by symbol and ts, unique; at least `BAR_SCHEMA`.
    stored
        Stored bars of these symbols, up to `CONTEXT` around.
    waiting
        Rows of the quarantine that `is_suspect` holds for; those of other times or symbols are left alone.
    """
    none = pl.DataFrame(schema={**BAR_SCHEMA, "reason": pl.String()})
    waiting = _near(waiting.select(BAR_SCHEMA.keys()).unique(), received)
    keys = ["symbol", "ts"]
    waiting = waiting.filter(pl.len().over(keys) == 1)  # two that differ: nothing says which is right
    if waiting.height:
        waiting = waiting.join(received, on=keys, how="anti").join(stored, on=keys, how="anti")
    wide = _wide(received, stored, waiting)
    here = received.filter(pl.col("symbol").is_in(wide)) if wide else received.clear()
    old = stored.filter(pl.col("symbol").is_in(wide)).select(BAR_SCHEMA.keys()) if wide else stored.clear()
    if here.is_empty():
        return Sifted(received, none, waiting.sort(keys), none)
    off = find_isolated(_union(here, old, waiting.filter(pl.col("symbol").is_in(wide))))
    bars = received.join(off, on=keys, how="anti", maintain_order="left") if off.height else received
    rejects = here.select(BAR_SCHEMA.keys()).join(off, on=keys).select(REJECT_COLUMNS)
    confirmed = waiting.join(off, on=keys, how="anti").sort(keys)
    settled = bars.filter(pl.col("symbol").is_in(wide)).select(BAR_SCHEMA.keys())
    settled = pl.concat([settled, confirmed.filter(pl.col("symbol").is_in(wide))])
    wrong = find_isolated(_union(settled, old, waiting.clear()))
    # What is stored yields only to a level that stored bars are part of: a wrong delivery cannot push it out.
    stays = old.join(settled, on=keys, how="anti")
    withdrawn = _near(stays, here).join(wrong.filter("backed"), on=keys).select(REJECT_COLUMNS)
    return Sifted(bars, rejects.sort(keys), confirmed, withdrawn.sort(keys))


def _wide(*frames: pl.DataFrame) -> list[str]:
    """Symbols whose prices, taken together, span more than `FACTOR`; in no other can there be an isolated error."""
    spans = [
        frame.group_by("symbol").agg(low=pl.col("low").min(), high=pl.col("high").max())
        for frame in frames
        if frame.height
    ]
    if not spans:
        return []
    ends = pl.concat(spans).group_by("symbol").agg(pl.col("low").min(), pl.col("high").max())
    return ends.filter(pl.col("high") > FACTOR * pl.col("low")).get_column("symbol").sort().to_list()


def _union(first: pl.DataFrame, stored: pl.DataFrame, waiting: pl.DataFrame) -> pl.DataFrame:
    """All bars known, each stamp once: as received, else as stored, else as set aside; `mine`: it is stored."""
    keys = ["symbol", "ts"]
    stamps = first.select(keys)
    return (
        pl.concat(
            [
                first.select(BAR_SCHEMA.keys()).join(
                    stored.select(*keys, mine=pl.lit(True)), on=keys, how="left", maintain_order="left"
                ),
                stored.select(BAR_SCHEMA.keys()).join(stamps, on=keys, how="anti").with_columns(mine=pl.lit(True)),
                waiting.select(BAR_SCHEMA.keys()).with_columns(mine=pl.lit(False)),
            ]
        )
        .with_columns(pl.col("mine").fill_null(False))
        .sort(keys)
    )


def _near(frame: pl.DataFrame, received: pl.DataFrame) -> pl.DataFrame:
    """Rows within `NEAR` of the span of the received bars of their symbol."""
    if frame.is_empty():
        return frame
    spans = received.group_by("symbol").agg(_from=pl.col("ts").min() - NEAR, _to=pl.col("ts").max() + NEAR)
    return frame.join(spans, on="symbol").filter(pl.col("ts").is_between("_from", "_to")).drop("_from", "_to")
