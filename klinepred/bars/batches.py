"""In: the rows of a delivery. Out: those of the days asked for, in batches of whole symbols."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import polars as pl

from klinepred.calendar import Clock


def batches(frame: pl.DataFrame, *, limit: int) -> Iterator[pl.DataFrame]:
    """The rows of whole symbols, at most `limit` at a time (or one symbol, if it has more)."""
    if frame.height <= limit:
        yield frame
        return
    runs = frame.get_column("symbol").rle().struct.unnest()
    grouped = runs.get_column("value").n_unique() == runs.height
    sizes = runs.group_by("value", maintain_order=True).agg(pl.col("len").sum())
    start, rows = 0, 0
    names: list[str | None] = []
    for name, size in [*sizes.iter_rows(), (None, limit)]:
        if names and rows + size > limit:
            mine = pl.col("symbol").is_in(names, nulls_equal=True)
            yield frame.slice(start, rows) if grouped else frame.filter(mine)
            start, rows, names = start + rows, 0, []
        rows += size
        names.append(name)


def within(frame: pl.DataFrame, start: date | None, end: date | None, clock: Clock) -> pl.DataFrame:
    """Rows whose day in the calendar's zone lies between `start` and `end`, both included."""
    day = pl.col("ts").dt.convert_time_zone(clock.zone).dt.date()
    if start is not None:
        frame = frame.filter((day >= start) | pl.col("ts").is_null())
    if end is not None:
        frame = frame.filter((day <= end) | pl.col("ts").is_null())
    return frame
