"""In: closes on their calendars' grids. Out: the target of each bar, its unit of volatility, the kind of step ahead."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from klinepred.calendar import Clock, place, segments
from klinepred.schema import CALENDAR
from klinepred.settings import DatasetSettings

WITHIN: Final = 0
BREAK: Final = 1
KINDS: Final = ("within", "break")
"""Kinds of step: inside a stretch of trading, or across a market break (overnight, weekend, lunch)."""

WITHIN_BARS, WITHIN_LEAST = 78, 26
BREAK_STEPS, BREAK_LEAST = 20, 5
FLOOR: Final = 1e-6
"""Volatility below a hundredth of a basis point per step is no unit to measure a return in: no target."""
BLOCK: Final = 100_000
"""Rows whose targets are computed at a time; more where one symbol has more."""
SLICE: Final = 1_000_000
"""Rows that a relative target's means are taken over at a time, about."""
QUORUM: Final = 5
"""Fewest symbols of the universe with a target at one time for a relative target to mean anything."""


def add_targets(closes: pl.DataFrame, settings: DatasetSettings, *, universe: tuple[str, ...]) -> pl.DataFrame:
    """Compute targets for every bar.

    The raw return of bar t is log(close[t+h] / close[t]), h = `settings.horizon`. It exists only where both ends are
    stored bars and every bar the calendar expects between them is stored too. Its unit is the trailing root mean
    square of one-bar returns of the same kind of step, known at the close of t: over the last 78 bars within a
    session (at least 26 steps), over the last 20 overnight steps (at least 5), over the last 20 lunch steps.
    A step over h > 1 bars has the root of the summed squares as its unit.

    Parameters
    ----------
    closes
        symbol, ts, close, calendar; sorted by symbol and ts, unique.
    universe
        The symbols whose mean a relative target is taken against.

    Returns
    -------
    polars.DataFrame
        `closes` with session, bar, slot, segment; `kind` (Int8, of the step AHEAD, by the calendar, so that the last
        bar has one); `vol` (Float64, the unit of the step ahead); `ret` (Float64, raw log return); `raw` (ret / vol);
        `y` (raw, or raw minus the universe's mean at that time where at least 5 symbols have one; none across a break
        if `settings.steps` leaves breaks out);
        `last_session`, `first_session` (Date: of the target bar t+h, of bar t+1). Null = does not exist.
    """
    frame = raw_targets(closes, settings)
    return add_labels(frame, settings, means=relative_means([frame], settings, universe=universe))


def raw_targets(closes: pl.DataFrame, settings: DatasetSettings) -> pl.DataFrame:
    """All of `add_targets` but `y`; for some whole symbols it is what it is for all."""
    return pl.concat([_raw_targets(part, settings.horizon) for part in blocks(closes)])


def blocks(frame: pl.DataFrame) -> list[pl.DataFrame]:
    """Cut rows that are sorted by symbol between symbols, so that intermediate columns never stand for all of them."""
    ends = frame.get_column("symbol").rle().struct.field("len").cum_sum().to_list()
    return [frame.slice(low, high - low) for low, high in pairwise(cuts_of(ends))]


def cuts_of(ends: Sequence[int]) -> list[int]:
    """Where to cut rows of whole symbols: at 0, then at ends of symbols, at most `BLOCK` apart where one is not more.

    Parameters
    ----------
    ends
        Rows up to the end of each symbol, in order.
    """
    if not ends:
        return [0, 0]
    cuts = [0]
    for end, following in pairwise(ends):
        if following - cuts[-1] > BLOCK:
            cuts.append(end)
    return [*cuts, ends[-1]]


def _raw_targets(closes: pl.DataFrame, h: int) -> pl.DataFrame:
    """All of `add_targets` but `y`, for whole symbols."""
    # symbols by number: rows are sorted by them, and numbers are compared and grouped faster than names
    frame = _ahead(place(closes), h).with_columns(_symbol=pl.col("symbol").rle_id())
    linked = pl.col("slot") == _before("slot") + 1
    group = (
        pl.when(~linked)
        .then(None)
        .when(pl.col("segment") == _before("segment"))
        .then(0)
        .when(pl.col("session") == _before("session"))
        .then(2)
        .otherwise(1)
    )
    frame = (
        frame.with_columns(_log=pl.col("close").log())
        .with_columns(_group=group.cast(pl.Int8), _square=((pl.col("_log") - _before("_log")) ** 2))
        .with_columns(
            _within=pl.when(pl.col("_group") == 0)
            .then("_square")
            .rolling_mean(WITHIN_BARS, min_samples=WITHIN_LEAST)
            .over("_symbol"),
        )
    )
    for number, name in ((1, "_overnight"), (2, "_lunch")):
        frame = _trailing_breaks(frame, number, name)
    ahead = pl.lit(h, pl.Int32)
    crossed = (pl.col("_segment_ahead") - pl.col("segment")).cast(pl.Int32)
    broken = pl.when(pl.col("_session_ahead") != pl.col("session")).then("_overnight").otherwise("_lunch")
    square = (
        pl.when(crossed == 0)
        .then(ahead * pl.col("_within"))
        .when(ahead > crossed)
        .then(broken * crossed + (ahead - crossed) * pl.col("_within"))
        .otherwise(broken * crossed)
    )
    vol = square.clip(lower_bound=0.0).sqrt()
    whole = _before("slot", -h) == pl.col("slot") + h
    return frame.select(
        *closes.columns,
        "session",
        "bar",
        "slot",
        "segment",
        kind=(crossed > 0).cast(pl.Int8),
        vol=pl.when(vol >= FLOOR).then(vol),
        ret=pl.when(whole).then(_before("_log", -h) - pl.col("_log")),
        last_session=pl.when(whole).then(_before("session", -h)),
        first_session=pl.when(whole).then(_before("session", -1)),
    ).with_columns(raw=pl.col("ret") / pl.col("vol"))


def _before(name: str, rows: int = 1) -> pl.Expr:
    """The value so many rows before, of the same symbol; null where there is none."""
    return pl.when(pl.col("_symbol").shift(rows) == pl.col("_symbol")).then(pl.col(name).shift(rows))


def _ahead(frame: pl.DataFrame, h: int) -> pl.DataFrame:
    """Session and segment of the bar that the calendar expects h bars after each row, and the row's number, `_row`."""
    parts = []
    for (name,), part in frame.with_row_index("_row").group_by(CALENDAR, maintain_order=True):
        table = segments(Clock.parse(str(name)))
        at = np.searchsorted(table["first_slot"].to_numpy(), part["slot"].to_numpy() + h, side="right") - 1
        parts.append(
            part.with_columns(_session_ahead=table["session"].gather(at), _segment_ahead=table["segment"].gather(at))
        )
    return parts[0] if len(parts) == 1 else pl.concat(parts).sort("_row")


def _trailing_breaks(frame: pl.DataFrame, number: int, name: str) -> pl.DataFrame:
    """Mean square of the last 20 steps of one kind of break, carried on until the next one is known."""
    steps = frame.filter(pl.col("_group") == number).select(
        "_row", pl.col("_square").rolling_mean(BREAK_STEPS, min_samples=BREAK_LEAST).over("_symbol").alias(name)
    )
    if steps.is_empty():  # as of lunch with most calendars
        return frame.with_columns(pl.lit(None, pl.Float64).alias(name))
    return frame.join(steps, on="_row", how="left", maintain_order="left").with_columns(
        pl.col(name).forward_fill().over("_symbol")
    )


def relative_means(
    parts: Sequence[pl.DataFrame], settings: DatasetSettings, *, universe: tuple[str, ...]
) -> pl.DataFrame | None:
    """ts, kind and `_mean` of `raw` over the universe, where at least `QUORUM` have one; None for a raw target.

    Parameters
    ----------
    parts
        symbol, ts, kind, raw; a row each symbol and ts in all of them together, in any order. A stretch of time is
        looked at after another, each small: the sum at one time runs over the symbols in their order.
    """
    if settings.target != "relative":
        return None
    keys = ["ts", "kind"]
    spans = [part.select(low=pl.col("ts").min(), high=pl.col("ts").max()) for part in parts if part.height]
    low, high = pl.concat(spans).select(pl.col("low").min(), pl.col("high").max()).row(0)
    count = -(-sum(part.height for part in parts) // SLICE)
    edges = [low + (high - low) * number / count for number in range(1, count)]
    means = []
    for begin, end in pairwise([None, *edges, None]):
        known = pl.col("symbol").is_in(list(universe)) & pl.col("raw").is_not_null()
        known = known if begin is None else known & (pl.col("ts") >= begin)
        known = known if end is None else known & (pl.col("ts") < end)
        rows = pl.concat([part.lazy().filter(known).select("symbol", *keys, "raw") for part in parts])
        means.append(
            rows.sort("ts", "symbol")
            .group_by(keys, maintain_order=True)
            .agg("raw")
            .filter(pl.col("raw").list.len() >= QUORUM)
            # of a list, since the mean of a group depends, in its last bits, on where the group lies
            .select(*keys, _mean=pl.col("raw").list.mean())
            .collect()
        )
    return pl.concat(means)


def add_labels(frame: pl.DataFrame, settings: DatasetSettings, *, means: pl.DataFrame | None) -> pl.DataFrame:
    """`frame` with `y` as `add_targets` has it, from ts, kind, raw and what `relative_means` gave."""
    if means is None:
        frame = frame.with_columns(y=pl.col("raw"))
    else:
        keys = ["ts", "kind"]
        mean = frame.select(keys).join(means, on=keys, how="left", maintain_order="left").get_column("_mean")
        frame = frame.with_columns(y=pl.col("raw") - mean)
    if settings.steps == "within-session":
        frame = frame.with_columns(y=pl.when(pl.col("kind") == WITHIN).then("y"))
    return frame
