"""In: what was counted about stored bars. Out: one row a symbol that says how complete, fresh and plausible it is."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import polars as pl

from klinepred.calendar import Clock, newest_finished, place
from klinepred.schema import CALENDAR, TS

ORDER: Final = (
    *("symbol", CALENDAR, "sessions", "expected", "received", "missing", "worst", "gaps", "longest_gap"),
    *(
        "zero_volume",
        "zero_run",
        "stale",
        "stale_run",
        "jumps",
        "spikes",
        "rescaled",
        "duplicates",
        "impossible",
        "quarantined",
    ),
    *("first_ts", "last_ts", "late", "ended", "renamed_to"),
)

ALWAYS: Final = ("symbol", CALENDAR, "sessions", "expected", "received", "missing", "worst", "last_ts", "late")
FOR_LISTINGS: Final = ("first_ts", "longest_gap", "zero_run", "stale_run")


def summarise(
    spans: pl.DataFrame,
    odd: pl.DataFrame,
    sessions: pl.DataFrame,
    gaps: pl.DataFrame,
    quarantine: pl.DataFrame,
    rescalings: pl.DataFrame,
    renames: pl.DataFrame,
    *,
    now: datetime,
) -> pl.DataFrame:
    """`Health.symbols` (see `klinepred.bars.health`), one row for each of `spans`, in their order of name."""
    total = sessions.group_by("symbol").agg(
        pl.len().cast(pl.Int64).alias("sessions"), pl.col("expected", "received", "missing").sum()
    )
    worst = (
        sessions.filter(pl.col("missing") > 0)
        .sort("symbol", "missing", "session", descending=[False, True, False])
        .group_by("symbol", maintain_order=True)
        .agg(worst=pl.col("session").first())
    )
    holes = gaps.group_by("symbol").agg(gaps=pl.len().cast(pl.Int64), longest_gap=pl.col("bars").max())
    aside = quarantine.group_by("symbol").agg(quarantined=pl.col("rows").sum())
    moved = rescalings.group_by("symbol").agg(rescaled=pl.len().cast(pl.Int64))
    table = spans.with_columns(late=_late(spans, now))
    for part in (total, worst, holes, odd, aside, moved, renames.select("symbol", "renamed_to")):
        table = table.join(part, on="symbol", how="left")
    counts = [name for name in ORDER if name in table.columns and table.schema[name] == pl.Int64 and name != "late"]
    return table.with_columns(pl.col(counts).fill_null(0)).select(ORDER).sort("symbol")


def _late(last: pl.DataFrame, now: datetime) -> pl.Series:
    """How many bars each symbol's calendar finished between its last stored bar and `now`; `last_ts` and `calendar`."""
    names = last.get_column(CALENDAR).unique().to_list()
    newest = pl.DataFrame(
        {CALENDAR: names, "ts": [newest_finished(Clock.parse(name), now) for name in names]},
        schema={CALENDAR: pl.String, "ts": TS},
    )
    slots = place(newest).select(CALENDAR, newest="slot")
    rows = place(last.select(pl.col("last_ts").alias("ts"), CALENDAR)).select(CALENDAR, "slot")
    gap = rows.join(slots, on=CALENDAR, how="left", maintain_order="left")
    return gap.select((pl.col("newest") - pl.col("slot")).clip(lower_bound=0).fill_null(0)).to_series()


def telling(table: pl.DataFrame) -> pl.DataFrame:
    """`summarise` for people: without the columns in which nothing was found, and without those only listings need."""
    found = [name for name in table.columns if name in ALWAYS or _found(table[name])]
    return table.select(name for name in found if name not in FOR_LISTINGS)


def _found(column: pl.Series) -> bool:
    return bool((column > 0).any()) if column.dtype.is_numeric() else column.null_count() < column.len()
