"""In: stored bars with their place on the calendar. Out: bars expected and received per session; runs of missing."""

# A slot is the running number of a bar on its calendar's grid (`klinepred.calendar.place`): what is missing is a hole
# in the slots. Nothing here lays the whole grid out per symbol, so the cost is that of the stored bars.

from __future__ import annotations

from datetime import datetime
from typing import Final

import polars as pl

from klinepred.calendar import Clock, segments
from klinepred.schema import BAR, BAR_MINUTES, TS

SESSIONS: Final[dict[str, pl.DataType]] = {
    "symbol": pl.String(),
    "session": pl.Date(),
    **dict.fromkeys(("expected", "received", "missing", "zero_volume"), pl.Int64()),
}
GAPS: Final[dict[str, pl.DataType]] = {
    "symbol": pl.String(),
    "from_ts": TS,
    "to_ts": TS,
    "bars": pl.Int64(),
    "sessions": pl.Int64(),
}
DAYTIMES: Final[dict[str, pl.DataType]] = {
    "calendar": pl.String(),
    "time": pl.String(),
    "expected": pl.Int64(),
    "missing": pl.Int64(),
}
MOVES: Final[dict[str, pl.DataType]] = {"slot": pl.Int64(), "expected": pl.Int64(), "missing": pl.Int64()}


def count_sessions(rows: pl.DataFrame, clock: Clock, *, now: datetime) -> pl.DataFrame:
    """Every session from a symbol's first to its last stored one: columns `SESSIONS`, sorted.

    Parameters
    ----------
    rows
        symbol, session, volume of bars of one calendar, each bar once.
    now
        Bars not finished by then (aware) are not expected. Whole sessions count, half days as such.
    """
    got = rows.group_by("symbol", "session").agg(
        received=pl.len().cast(pl.Int64), zero_volume=(pl.col("volume") == 0.0).sum().cast(pl.Int64)
    )
    spans = got.group_by("symbol").agg(first=pl.col("session").min(), last=pl.col("session").max())
    days = expected_bars(clock, now).select("session", "expected")
    if spans.height:
        days = days.filter(pl.col("session").is_between(spans["first"].min(), spans["last"].max()))
    wanted = spans.join(days, how="cross").filter(pl.col("session").is_between("first", "last"))
    return (
        wanted.join(got, on=["symbol", "session"], how="left")
        .with_columns(pl.col("received", "zero_volume").fill_null(0))
        .with_columns(missing=pl.col("expected") - pl.col("received"))
        .select(SESSIONS.keys())
        .sort("symbol", "session")
    )


def find_gaps(rows: pl.DataFrame, clock: Clock, *, now: datetime) -> pl.DataFrame:
    """Runs of missing bars, columns `GAPS`, sorted; their `bars` add up to what `count_sessions` misses.

    `from_ts` and `to_ts` are the opens of the first and the last missing bar, `bars` how many the calendar expects from
    one to the other, `sessions` how many sessions that touches. A run goes on over a night or a lunch break: a closed
    market is no bar. The first session of a symbol is expected from its open, the last one to its close or `now`.

    Parameters
    ----------
    rows
        symbol, session, slot of bars of one calendar, sorted by symbol and slot, each bar once.
    """
    holes = _holes(rows, _edges(rows, clock, now))
    begun = _at(holes.select(pl.col("begin").alias("slot")), clock)
    ended = _at(holes.select(pl.col("end").alias("slot")), clock)
    return holes.select(
        "symbol",
        from_ts=begun["ts"],
        to_ts=ended["ts"],
        bars=pl.col("end") - pl.col("begin") + 1,
        sessions=ended["day"] - begun["day"] + 1,
    ).cast(GAPS)  # type: ignore[arg-type]  # a mapping of names to types


def count_moves(rows: pl.DataFrame, clock: Clock, *, now: datetime) -> pl.DataFrame:
    """By how much the number of symbols expected, and missing, changes at each slot: columns `MOVES`.

    Parameters as `find_gaps`. Tables of several groups of symbols may be put under each other: see `share_by_time`.
    """
    edges = _edges(rows, clock, now)
    holes = _holes(rows, edges)
    steps = [
        edges.select(slot="first_slot", expected=pl.lit(1), missing=pl.lit(0)),
        edges.select(slot=pl.col("last_slot") + 1, expected=pl.lit(-1), missing=pl.lit(0)),
        holes.select(slot="begin", expected=pl.lit(0), missing=pl.lit(1)),
        holes.select(slot=pl.col("end") + 1, expected=pl.lit(0), missing=pl.lit(-1)),
    ]
    typed = [step.cast(MOVES) for step in steps]  # type: ignore[arg-type]
    return pl.concat(typed).group_by("slot").agg(pl.col("expected", "missing").sum())


def share_by_time(moves: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    """Bars expected and missing by the time of day of the venue, in the order of its session: columns `DAYTIMES`."""
    if moves.is_empty():
        return pl.DataFrame(schema=DAYTIMES)
    counts = moves.group_by("slot").agg(pl.col("expected", "missing").sum()).sort("slot")
    low, high = counts["slot"][0], counts["slot"][-1]
    slots = pl.DataFrame({"slot": pl.int_range(low, high, eager=True)}, schema={"slot": pl.Int64})
    level = slots.join(counts, on="slot", how="left", maintain_order="left").with_columns(
        pl.col("expected", "missing").fill_null(0).cum_sum()
    )
    local = _at(level, clock)["ts"].dt.convert_time_zone(clock.zone)
    return (
        level.with_columns(time=local.dt.strftime("%H:%M"), bar=_at(level, clock)["bar"])
        .filter(pl.col("expected") > 0)
        .group_by("time")
        .agg(pl.col("expected", "missing").sum(), pl.col("bar").min())
        .sort("bar", "time")
        .select(pl.lit(str(clock)).alias("calendar"), "time", "expected", "missing")
        .cast(DAYTIMES)  # type: ignore[arg-type]
    )


def expected_bars(clock: Clock, now: datetime) -> pl.DataFrame:
    """Sessions with a bar finished at `now`, in time order: session, expected (bars), first_slot, last_slot (Int64)."""
    done = (pl.lit(now).cast(TS) - pl.col("open")).dt.total_minutes() // BAR_MINUTES
    length = ((pl.col("close") - pl.col("open")).dt.total_minutes() + BAR_MINUTES - 1) // BAR_MINUTES
    return (
        segments(clock)
        .filter(pl.col("open") + BAR <= now)
        .with_columns(expected=pl.min_horizontal(done, length))
        .group_by("session", maintain_order=True)
        .agg(pl.col("expected").sum(), pl.col("first_slot").first())
        .with_columns(last_slot=pl.col("first_slot") + pl.col("expected") - 1)
    )


def _edges(rows: pl.DataFrame, clock: Clock, now: datetime) -> pl.DataFrame:
    """Per symbol the slots between which bars are expected: symbol, first_slot, last_slot."""
    days = expected_bars(clock, now)
    spans = rows.group_by("symbol", maintain_order=True).agg(
        first=pl.col("session").min(), last=pl.col("session").max()
    )
    return (
        spans.join(days.select(first="session", first_slot="first_slot"), on="first", maintain_order="left")
        .join(days.select(last="session", last_slot="last_slot"), on="last", maintain_order="left")
        .select("symbol", "first_slot", "last_slot")
    )


def _holes(rows: pl.DataFrame, edges: pl.DataFrame) -> pl.DataFrame:
    """Runs of slots without a row, between the edges of each symbol: symbol, begin, end, sorted."""
    fences = [
        edges.select("symbol", slot=pl.col("first_slot") - 1),
        edges.select("symbol", slot=pl.col("last_slot") + 1),
    ]
    # rows are sorted by symbol and slot: the slots before a symbol's first and after its last row come from the fences
    first = rows.select("symbol", "slot").group_by("symbol", maintain_order=True)
    ends = first.agg(low=pl.col("slot").min(), high=pl.col("slot").max())
    inner = rows.select(
        "symbol",
        begin=pl.col("slot").shift(1) + 1,
        end=pl.col("slot") - 1,
        same=pl.col("symbol") == pl.col("symbol").shift(1),
    ).filter(pl.col("same") & (pl.col("begin") <= pl.col("end")))
    before = fences[0].join(ends, on="symbol").select("symbol", begin=pl.col("slot") + 1, end=pl.col("low") - 1)
    after = fences[1].join(ends, on="symbol").select("symbol", begin=pl.col("high") + 1, end=pl.col("slot") - 1)
    outer = pl.concat([before, after]).filter(pl.col("begin") <= pl.col("end"))
    return pl.concat([inner.drop("same"), outer]).sort("symbol", "begin")


def _at(slots: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    """Open, index within its session and running number of the session of each `slot`, in the order given."""
    pieces = segments(clock).select("first_slot", "open", "first_bar", day=pl.col("session").rle_id().cast(pl.Int64))
    order = slots.select("slot").with_row_index("row").sort("slot")
    found = order.join_asof(pieces, left_on="slot", right_on="first_slot", check_sortedness=False).sort("row")
    past = pl.col("slot") - pl.col("first_slot")
    return found.select(
        (pl.col("open") + pl.duration(minutes=past * BAR_MINUTES)).cast(TS).alias("ts"),
        (pl.col("first_bar") + past).alias("bar"),
        "day",
    )
