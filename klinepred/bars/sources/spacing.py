"""In: rows of any even spacing, stamped by opens or ends. Out: 5-minute rows: minutes added up, coarser refused."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import polars as pl

from klinepred.bars.clean import REJECT_SCHEMA, is_sorted, pieces
from klinepred.bars.delivery import Failure
from klinepred.bars.sources.buckets import add_up, span
from klinepred.calendar import Clock, segments
from klinepred.schema import BAR, BAR_US

BAR_S: Final = BAR_US // 1_000_000
DAY_S: Final = 86_400
NEAR_S: Final = 1800
"""Distances of rows up to this many seconds lie within one session and are multiples of the spacing."""
FEW_ROWS: Final = 20
"""So few rows with gaps do not tell their spacing when the other symbols of the file have 5 minutes."""


@dataclass(frozen=True)
class Spaced:
    """Rows brought to 5 minutes, stamped by their opens; what had to be left out; lines for the user.

    `spacing` is what the rows had before, in words, by symbol.
    """

    frame: pl.DataFrame
    rejects: pl.DataFrame
    failures: dict[str, Failure]
    remarks: tuple[str, ...]
    spacing: dict[str, str]


def to_five_minutes(frame: pl.DataFrame, *, clock: Clock, ends: bool) -> Spaced:
    """Find the spacing of each symbol and make 5-minute rows of what is finer.

    A row of 5 minutes stays as it is. Finer ones are added up in buckets counted from the open of the trading session:
    first open, highest high, lowest low, last close, sum of volume. A row that lies across the edge of two buckets
    (2, 3, 4 minutes) belongs to the one it ends in, so that no bar knows of anything after its close. What lies
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
    words = {name: span(usual) for name, usual in spacing.select("symbol", "usual").iter_rows()}
    remarks: list[str] = []
    failures = {name: Failure("rejected", text) for name, text in refused.items()}
    rejects = pl.DataFrame(schema=REJECT_SCHEMA)
    if refused:
        frame = frame.filter(~pl.col("symbol").is_in(list(refused)))
    if not fine:
        if ends:
            frame = frame.with_columns(pl.col("ts") - BAR)
            remarks.append("time stamps are read as ends of bars: 5 minutes taken off")
        return Spaced(frame, rejects, failures, tuple(remarks), words)
    made, sets = [frame.filter(~pl.col("symbol").is_in(list(fine)))], []
    if ends:
        made[0] = made[0].with_columns(pl.col("ts") - BAR)
    for seconds in sorted(set(fine.values())):
        names = [name for name, its in fine.items() if its == seconds]
        rows = frame.filter(pl.col("symbol").is_in(names))
        if ends:
            rows = rows.with_columns(pl.col("ts") - pl.duration(seconds=seconds))
            remarks.append(f"time stamps are read as ends of bars: {span(seconds).replace('-', ' ')} taken off")
        bars, bad, lines = add_up(rows, seconds, clock)
        made.append(bars)
        sets.append(bad)
        remarks.extend(lines)
    return Spaced(pl.concat(made), pl.concat([rejects, *sets]), failures, tuple(remarks), words)


def _spacing(frame: pl.DataFrame) -> pl.DataFrame:
    """Per symbol: `usual` (most frequent distance of neighbours, s), `least` (s), `five` (a distance of 5 minutes is
    there), `odd` (short distances that are no multiple of the usual one), `rows`. Symbols with one stamp are left
    out."""
    odd = (pl.col("gap") <= NEAR_S) & (pl.col("gap") % pl.col("gap").first() != 0)
    return (
        _gaps(frame)
        .lazy()
        .sort("symbol", pl.col("len"), pl.col("gap"), descending=[False, True, False])
        .group_by("symbol", maintain_order=True)
        .agg(
            usual=pl.col("gap").first(),
            least=pl.col("gap").min(),
            five=(pl.col("gap") == BAR_S).any(),
            odd=pl.col("len").filter(odd).sum(),
            rows=pl.col("len").sum(),
        )
        .collect()
    )


def _gaps(frame: pl.DataFrame) -> pl.DataFrame:
    """Per symbol each distance of neighbours (`gap`, s, above 0) and how often it is there (`len`); rows sorted."""
    same = pl.col("symbol") == pl.col("symbol").shift(1)
    gap = pl.col("ts").diff().dt.total_seconds()
    # Nearly all are 5 minutes: those are what the others leave of the rows of a symbol, and are not looked at.
    others = pl.concat(
        part.lazy()
        .select("symbol", same=same, gap=gap)
        .filter(pl.col("same") & pl.col("gap").ne_missing(BAR_S))
        .group_by("symbol", "gap")
        .len()
        .collect()
        for part in pieces(frame)
    )
    others = others.group_by("symbol", "gap").agg(pl.col("len").cast(pl.Int64).sum())
    pairs = (
        frame.get_column("symbol").rle().struct.unnest().select(symbol="value", all=pl.col("len").cast(pl.Int64) - 1)
    )
    known = others.group_by("symbol").agg(known=pl.col("len").sum())
    five = (
        pairs.drop_nulls("symbol")
        .join(known, on="symbol", how="left")
        .select("symbol", gap=pl.lit(BAR_S, pl.Int64), len=pl.col("all") - pl.col("known").fill_null(0))
    )
    return pl.concat([others.filter(pl.col("gap") > 0), five.filter(pl.col("len") > 0)])


def _sort_out(spacing: pl.DataFrame) -> tuple[dict[str, int], dict[str, str]]:
    """Symbols to add up with their spacing in seconds, and symbols to refuse with the reason."""
    fine: dict[str, int] = {}
    refused: dict[str, str] = {}
    all_usual = spacing.group_by("usual").agg(pl.col("rows").sum()).sort("rows", descending=True)
    five_here = not all_usual.is_empty() and all_usual.item(0, "usual") == BAR_S
    for symbol, usual, least, five, odd, rows in spacing.iter_rows():
        if usual == BAR_S or (usual > BAR_S and (five or (five_here and rows < FEW_ROWS))):
            continue
        if usual > BAR_S:
            unit = least if least > BAR_S else usual
            refused[symbol] = (
                f"spacing {span(unit)}: coarser than 5 minutes, and bars cannot be made finer; nothing was stored"
            )
        elif BAR_S % usual and (DAY_S % usual or odd * 20 > rows):
            why = (
                f"{odd:,} of {rows:,} distances are no multiple of it"
                if odd * 20 > rows
                else "it does not divide a day"
            )
            refused[symbol] = f"spacing {span(usual)} as it seems, but {why}; get 1-minute or 5-minute bars"
        else:
            fine[symbol] = usual
    return fine, refused


def _distinct(stamps: pl.Series) -> pl.Series:
    """Each stamp once. Most symbols of a file have the stamps of the one before them: such repeats are passed over."""
    starts = (stamps < stamps.shift(1)).arg_true().to_list()
    if len(starts) * 100 > len(stamps):
        return stamps.unique()
    edges = [0, *starts, len(stamps)]
    parts = [stamps.slice(low, high - low) for low, high in pairwise(edges)]
    fresh = [part for before, part in pairwise(parts) if not part.equals(before)]
    return pl.concat([parts[0], *fresh]).unique()


def look_otherwise(frame: pl.DataFrame, *, clock: Clock, ends: bool) -> str | None:
    """A line for the user when stamps taken for opens look like ends, or the other way round; raw stamps in `frame`.

    Rows stamped by their opens come at the open of trading and not at its close; ends the other way round. Where that
    is seen once only, it counts if trading then begins one row late, or ends one row early, as well.
    """
    stretches, stamps = segments(clock), _distinct(frame.get_column("ts"))
    opens, closes = (stretches.get_column(name).implode() for name in ("open", "close"))
    opening, closing = stamps.is_in(opens), stamps.is_in(closes)
    at_open, at_close = int((opening & ~closing).sum()), int((closing & ~opening).sum())
    step = stamps.sort().diff().drop_nulls().mode().min() if at_open + at_close == 1 else None
    if step is not None:
        inner = stamps - step if not ends else stamps + step
        at_open += int(ends and at_open == 1 and inner.is_in(closes).any())
        at_close += int(not ends and at_close == 1 and inner.is_in(opens).any())
    if not ends and at_close > 4 * at_open + 1:
        return f"stamps look like bar ENDS ({at_close} at the close of trading, {at_open} at its open): --stamp close?"
    if ends and at_open > 4 * at_close + 1:
        return f"stamps look like bar OPENS ({at_open} at the open of trading, {at_close} at its close): --stamp open?"
    return None
