"""In: rows of any even spacing, stamped by opens or ends. Out: 5-minute rows: minutes added up, coarser refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from klinepred.bars.check import value_rules
from klinepred.bars.clean import CONFLICT, OUTSIDE, REASON, REJECT_SCHEMA, is_sorted, pieces
from klinepred.bars.delivery import Failure
from klinepred.calendar import Clock, segments
from klinepred.schema import BAR, BAR_SCHEMA, BAR_US, PRICES

BAR_S: Final = BAR_US // 1_000_000
FEW_ROWS: Final = 20
"""So few rows with gaps do not tell their spacing when the other symbols of the file have 5 minutes."""


@dataclass(frozen=True)
class Spaced:
    """Rows brought to 5 minutes, stamped by their opens; what had to be left out; lines for the user."""

    frame: pl.DataFrame
    rejects: pl.DataFrame
    failures: dict[str, Failure]
    remarks: tuple[str, ...]


def to_five_minutes(frame: pl.DataFrame, *, clock: Clock, ends: bool) -> Spaced:
    """Find the spacing of each symbol and make 5-minute rows of what is finer.

    A row of 5 minutes stays as it is. Finer ones whose length divides 5 minutes are added up in buckets counted from
    the open of the trading session: first open, highest high, lowest low, last close, sum of volume. What lies
    outside sessions or is impossible is not added in but set aside.

    Parameters
    ----------
    frame
        `BAR_SCHEMA`.
    ends
        Stamps are the ends of their rows; one spacing is taken off.
    """
    if not is_sorted(frame):
        frame = frame.sort("symbol", "ts", maintain_order=True)
    spacing = _spacing(frame)
    fine, refused = _sort_out(spacing)
    remarks: list[str] = []
    failures = {name: Failure("rejected", text) for name, text in refused.items()}
    rejects = pl.DataFrame(schema=REJECT_SCHEMA)
    if refused:
        frame = frame.filter(~pl.col("symbol").is_in(list(refused)))
    if not fine:
        if ends:
            frame = frame.with_columns(pl.col("ts") - BAR)
            remarks.append("time stamps are read as ends of bars: 5 minutes taken off")
        return Spaced(frame, rejects, failures, tuple(remarks))
    made, sets = [frame.filter(~pl.col("symbol").is_in(list(fine)))], []
    if ends:
        made[0] = made[0].with_columns(pl.col("ts") - BAR)
    for seconds in sorted(set(fine.values())):
        names = [name for name, its in fine.items() if its == seconds]
        rows = frame.filter(pl.col("symbol").is_in(names))
        if ends:
            rows = rows.with_columns(pl.col("ts") - pl.duration(seconds=seconds))
            remarks.append(f"time stamps are read as ends of bars: {_span(seconds).replace('-', ' ')} taken off")
        bars, bad, lines = _add_up(rows, seconds, clock)
        made.append(bars)
        sets.append(bad)
        remarks.extend(lines)
    return Spaced(pl.concat(made), pl.concat([rejects, *sets]), failures, tuple(remarks))


def _spacing(frame: pl.DataFrame) -> pl.DataFrame:
    """Per symbol: `usual` (most frequent distance of neighbours, s), `least` (s), `five` (a distance of 5 minutes is
    there), `rows`. Symbols with one stamp are left out."""
    same = pl.col("symbol") == pl.col("symbol").shift(1)
    gaps = pl.concat(
        part.lazy()
        .select("symbol", gap=pl.when(same).then(pl.col("ts").diff().dt.total_seconds()))
        .filter(pl.col("gap") > 0)
        .group_by("symbol", "gap")
        .len()
        .collect()
        for part in pieces(frame)
    )
    return (
        gaps.lazy()
        .group_by("symbol", "gap")
        .agg(pl.col("len").sum())
        .sort("symbol", pl.col("len"), pl.col("gap"), descending=[False, True, False])
        .group_by("symbol", maintain_order=True)
        .agg(
            usual=pl.col("gap").first(),
            least=pl.col("gap").min(),
            five=(pl.col("gap") == BAR_S).any(),
            rows=pl.col("len").sum(),
        )
        .collect()
    )


def _sort_out(spacing: pl.DataFrame) -> tuple[dict[str, int], dict[str, str]]:
    """Symbols to add up with their spacing in seconds, and symbols to refuse with the reason."""
    fine: dict[str, int] = {}
    refused: dict[str, str] = {}
    all_usual = spacing.group_by("usual").agg(pl.col("rows").sum()).sort("rows", descending=True)
    five_here = not all_usual.is_empty() and all_usual.item(0, "usual") == BAR_S
    for symbol, usual, least, five, rows in spacing.iter_rows():
        if usual == BAR_S or (usual > BAR_S and (five or (five_here and rows < FEW_ROWS))):
            continue
        if usual > BAR_S:
            unit = least if least > BAR_S else usual
            refused[symbol] = (
                f"spacing {_span(unit)}: coarser than 5 minutes, and bars cannot be made finer; nothing was stored"
            )
        elif BAR_S % usual == 0:
            fine[symbol] = usual
        else:
            refused[symbol] = f"spacing {_span(usual)} does not divide 5 minutes; get 1-minute or 5-minute bars"
    return fine, refused


def _add_up(rows: pl.DataFrame, seconds: int, clock: Clock) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    stamps = rows.select(pl.col("ts").unique()).drop_nulls().sort("ts")
    stretches = segments(clock).select(pl.col("open").alias("_open"), pl.col("close").alias("_end"))
    past = (pl.col("ts") - pl.col("_open")).dt.total_microseconds()
    stamps = (
        stamps.join_asof(stretches, left_on="ts", right_on="_open", strategy="backward", check_sortedness=False)
        .with_columns(_inside=(pl.col("ts") < pl.col("_end")).fill_null(False), _even=past % (seconds * 1_000_000) == 0)
        .with_columns(_bar=pl.col("_open") + pl.duration(microseconds=past // BAR_US * BAR_US))
        .select("ts", "_inside", "_even", "_bar")
    )
    whole = rows.unique(maintain_order=True)
    empty = pl.all_horizontal((pl.col(name).is_null() | pl.col(name).is_nan()) for name in PRICES)
    reason = (
        pl.when(pl.col("ts").is_null())
        .then(pl.lit("the time stamp cannot be read"))
        .when(empty)
        .then(pl.lit(""))
        .when(~pl.col("_inside"))
        .then(pl.lit(OUTSIDE))
        .when(~pl.col("_even"))
        .then(pl.lit(f"not on the {_span(seconds)} grid"))
    )
    for text, broken in value_rules():
        reason = reason.when(broken).then(pl.lit(text))
    judged = whole.join(stamps, on="ts", how="left", maintain_order="left").with_columns(reason.alias(REASON))
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
    )
    lines = [f"{_span(seconds)} rows made into 5-minute bars: {rows.height:,} rows, {bars.height:,} bars"]
    if whole.height < rows.height:
        lines.append(f"{rows.height - whole.height:,} repeated {_span(seconds)} rows counted once")
    blank = judged.filter(pl.col(REASON) == "").height
    if blank:
        lines.append(f"{blank:,} {_span(seconds)} rows without prices left out")
    wanted = BAR_S // seconds
    tails = bars.group_by("symbol", maintain_order=True).last().filter(pl.col("parts") < wanted)
    lines.extend(
        f"{symbol}: the last bar {ts:%Y-%m-%d %H:%MZ} is made of {parts} of {wanted} rows"
        for symbol, ts, parts in tails.select("symbol", "ts", "parts").iter_rows()
    )
    rejects = judged.filter(pl.col(REASON).is_not_null() & (pl.col(REASON) != ""))
    return bars.select(*BAR_SCHEMA), rejects.select(*REJECT_SCHEMA), lines


def _span(seconds: int) -> str:
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % size == 0:
            return f"{seconds // size}-{unit}"
    return f"{seconds}-second"


def look_otherwise(frame: pl.DataFrame, *, clock: Clock, ends: bool) -> str | None:
    """A line for the user when stamps taken for opens look like ends, or the other way round; raw stamps in `frame`.

    Rows stamped by their opens come at the open of trading and not at its close; ends the other way round.
    """
    stretches = segments(clock)
    opens, closes = (set(stretches.get_column(name).to_list()) for name in ("open", "close"))
    stamps = set(frame.get_column("ts").unique().to_list())
    at_open, at_close = len(stamps & (opens - closes)), len(stamps & (closes - opens))
    if not ends and at_close > 4 * at_open + 1:
        return f"stamps look like bar ENDS ({at_close} at the close of trading, {at_open} at its open): --stamp close?"
    if ends and at_open > 4 * at_close + 1:
        return f"stamps look like bar OPENS ({at_open} at the open of trading, {at_close} at its close): --stamp open?"
    return None
