"""In: parts of one ingest on differing bases, the stored bars. Out: all of the symbol on the basis of the newest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

import polars as pl

from klinepred.bars.basis import CHANGE, Measured, measure
from klinepred.bars.levels import Factor, Levels, Number, find_factors, is_one, nearest, read_step
from klinepred.bars.rescale import AWAY, Rescaled, times
from klinepred.schema import BAR_SCHEMA, PRICES

NEAR: Final = timedelta(days=14)
"""Closes further apart than this tell nothing of a basis: prices have moved."""
ROUNDS: Final = 12
END: Final = timedelta(microseconds=1)


@dataclass(frozen=True)
class Stretch:
    """First and last bar of a part that was stored earlier in the ingest; `touched`: it overlapped stored bars."""

    first: datetime
    last: datetime
    touched: bool


@dataclass(frozen=True)
class Together:
    """A symbol on one basis.

    Attributes
    ----------
    bars
        All there will be of it, in `BAR_SCHEMA`, sorted; `held`: it came in a part that was held.
    records
        What was multiplied, a record for each factor.
    """

    bars: pl.DataFrame
    records: tuple[Rescaled, ...]


def bring_together(
    symbol: str, parts: Sequence[pl.DataFrame], stored: pl.DataFrame, came: Sequence[Stretch]
) -> Together | str | None:
    """Find out on which of several bases each stretch is, and bring all of them to that of the newest bars.

    The verdict depends on the bars, not on the order of the parts. All sources (the parts, the stored bars) are cut at
    the ends of all others and where a ratio between them begins or ends. The stretches are linked by the bars they
    have in common; where they have none, by the step of the price from one to the next, which is near 1 or near one of
    the ratios found.

    Parameters
    ----------
    parts
        Bars that are held, in the order they came; stamps unique within each.
    stored
        All stored bars of the symbol, those that came earlier in this ingest included.
    came
        Where these lie.

    Returns
    -------
    Together, or str
        The symbol on one basis, or why that cannot be decided.
    None
        All are on one basis, or nothing shows two.
    """
    columns = [*BAR_SCHEMA]
    frames = [stored.select(columns), *(part.select(columns) for part in parts)]
    rows = pl.concat([frame.with_columns(source=pl.lit(n, pl.UInt32)) for n, frame in enumerate(frames)])
    rows = rows.sort("ts", "source")
    cuts = {edge for one in came for edge in (one.first, one.last + END)}
    for part in parts:
        first, last = _span(part)
        cuts |= {first, last + END}
    for _ in range(ROUNDS):
        bars = _number(rows, cuts)
        pairs = _pairs(bars)
        seen = measure(pairs.select("symbol", "ts", "close", "volume", "_close", "_volume"))
        if seen.strange:
            return f"{next(iter(seen.strange.values()))}; {AWAY}"
        more = _edges(seen) - cuts
        if not more:
            break
        cuts |= more
    if not seen.shifts:
        return None
    if any(shift.side == "between" for shift in seen.shifts.values()):
        return f"bars on two bases lie between each other in what came; ingest them on one basis, {AWAY}"
    factors = find_factors([*seen.shifts.values()])
    if isinstance(factors, str):
        return f"{factors}; {AWAY}"
    levels = _link(bars, pairs, seen, factors, came)
    if isinstance(levels, str):
        return levels
    return _merge(symbol, bars, levels, factors, came)


def _number(rows: pl.DataFrame, cuts: set[datetime]) -> pl.DataFrame:
    """`rows` with `node`, the number of their stretch: one source between two cuts."""
    edges = pl.Series("ts", sorted(cuts), dtype=BAR_SCHEMA["ts"])
    piece = edges.search_sorted(rows["ts"], side="right")
    bars = rows.with_columns(piece=pl.Series(piece, dtype=pl.UInt32))
    return bars.with_columns(node=(pl.col("source") * (len(edges) + 1) + pl.col("piece")).rank("dense") - 1)


def _pairs(bars: pl.DataFrame) -> pl.DataFrame:
    """Bars of one stamp in two sources side by side; `symbol` names the two stretches, `_` the higher one."""
    columns = ["node", "close", "volume"]
    pairs = bars.with_columns(pl.col("ts", *columns).shift(1).name.prefix("_")).filter(pl.col("ts") == pl.col("_ts"))
    sums = pairs.group_by("node", "_node").agg(swap=pl.col("close").sum() > pl.col("_close").sum())
    pairs = pairs.join(sums, on=["node", "_node"])
    turned = {f"_{name}": name for name in columns} | {name: f"_{name}" for name in columns}
    rest = [*columns, *(f"_{name}" for name in columns), "ts"]
    pairs = pl.concat([pairs.filter(~pl.col("swap")).select(rest), pairs.filter("swap").rename(turned).select(rest)])
    return pairs.with_columns(symbol=pl.format("{}|{}", "node", "_node")).sort("symbol", "ts")


def _edges(seen: Measured) -> set[datetime]:
    """Where a ratio begins or ends inside a stretch."""
    found = set[datetime]()
    for shift in seen.shifts.values():
        if shift.before is not None:
            found.add(shift.first)
        if shift.after is not None:
            found.add(shift.after.ts)
    return found


def _link(
    bars: pl.DataFrame, pairs: pl.DataFrame, seen: Measured, factors: Sequence[Factor], came: Sequence[Stretch]
) -> Levels | str:
    """The levels of all stretches, or why they cannot be known."""
    levels = Levels.apart(int(bars["node"].max()) + 1)  # type: ignore[arg-type]
    middle = pairs.group_by("symbol", "node", "_node").agg(
        ratio=(pl.col("close") / pl.col("_close")).median(), ts=pl.col("ts").min()
    )
    for symbol, first, second, ratio, ts in middle.sort("ts", "node", "_node").iter_rows():
        if symbol in seen.shifts:
            factor = nearest(factors, float(seen.shifts[symbol].ratio))
            fits = levels.join(first, second, factor.price, factor.volume)
        else:
            fits = abs(ratio - 1.0) > CHANGE or levels.join(first, second)
        if not fits:
            return (
                f"bars of several bases came that contradict each other (from {ts:%Y-%m-%d %H:%MZ}); ingest them one "
                f"basis at a time, {AWAY}"
            )
    for first, second, step in _neighbours(bars).iter_rows():
        if levels.groups == 1:
            break
        found = read_step(step, factors)
        if found is not None and levels.group[first] != levels.group[second]:
            levels.join(second, first, *found)
    for first, second in _same_source(bars, came):
        if levels.group[first] != levels.group[second]:
            levels.join(second, first)
    return levels


def _neighbours(bars: pl.DataFrame) -> pl.DataFrame:
    """Neighbouring bars of two stretches: both stretches, and the step of the price; the nearest in time first."""
    one, many = bars.group_by("ts", maintain_order=True), ["node", "open", "close", "ts"]
    chains = [bars.sort("source", "ts"), one.first(), one.last()]
    steps = [
        frame.select("source", *many, pl.col("source", *many).shift(1).name.prefix("_")).filter(
            (pl.col("source") == pl.col("_source")) | (pl.lit(number) > 0)
        )
        for number, frame in enumerate(chains)
    ]
    table = pl.concat(steps).with_columns(gap=pl.col("ts") - pl.col("_ts"), step=pl.col("open") / pl.col("_close"))
    table = table.filter((pl.col("node") != pl.col("_node")) & pl.col("gap").is_between(END, NEAR))
    return table.sort("gap", "ts", "source").select("_node", "node", "step").unique(["_node", "node"], keep="first",
                                                                                   maintain_order=True)  # fmt: skip


def _same_source(bars: pl.DataFrame, came: Sequence[Stretch]) -> list[tuple[int, int]]:
    """Stretches of one source that follow each other; stored bars of this ingest and earlier ones are two sources."""
    spots = (
        bars.group_by("source", "node").agg(first=pl.col("ts").min(), last=pl.col("ts").max()).sort("source", "first")
    )
    chains = dict[tuple[int, int], list[int]]()
    for source, node, first, last in spots.iter_rows():
        owners = [n for n, one in enumerate(came, 1) if one.first <= first and last <= one.last] if source == 0 else []
        for owner in owners or [0]:
            chains.setdefault((source, owner), []).append(node)
    before = chains.get((0, 0), [])
    touching = [
        (before[0], chains[0, n][0]) for n, one in enumerate(came, 1) if one.touched and before and (0, n) in chains
    ]
    return [*(pair for chain in chains.values() for pair in pairwise(chain)), *touching]


def _merge(
    symbol: str, bars: pl.DataFrame, levels: Levels, factors: Sequence[Factor], came: Sequence[Stretch]
) -> Together | str:
    """Everything on the basis of the newest bars; of several bars of one stamp the one that was on it already."""
    newest = bars.filter(pl.col("ts") == pl.col("ts").max())
    stamp: datetime = newest["ts"][0]
    received = newest.filter(pl.col("source") > 0)
    if received.height and not any(one.first <= stamp <= one.last for one in came):
        newest = received  # what was stored before the ingest gives way to what came
    target = int(newest["node"][-1])
    apart = [n for n, group in enumerate(levels.group) if group != levels.group[target]]
    if apart:
        first, last = _span(bars.filter(pl.col("node").is_in(apart)))
        return (
            f"bars of two bases came ({_list(factors)}), and neither common bars nor the price say on which of them "
            f"those from {first:%Y-%m-%d %H:%MZ} to {last:%Y-%m-%d %H:%MZ} are; ingest them one basis at a time, {AWAY}"
        )
    if any(not is_one(levels.between(int(node), target)[0]) for node in newest["node"]):
        return (
            f"bars of two bases came ({_list(factors)}), and both end with {stamp:%Y-%m-%d %H:%MZ}, so that nothing "
            f"says which is the newer; ingest them one basis at a time, the newer last, {AWAY}"
        )
    groups = dict[tuple[Number, Number], list[int]]()
    for node in range(len(levels.group)):
        groups.setdefault(levels.between(node, target), []).append(node)
    silent = {factor.price for factor in factors if factor.kind == "zero"}
    done = list[pl.DataFrame]()
    for number, ((price, volume), nodes) in enumerate(groups.items()):
        mine = bars.filter(pl.col("node").is_in(nodes)).with_columns(
            *(times(price)(pl.col(name)).alias(name) for name in PRICES),
            times(volume)(pl.col("volume")).alias("volume"),
            moved=pl.lit(not is_one(price)),
            factor=pl.lit(number),
        )
        if not is_one(price) and silent & {price, 1 / price} and mine["volume"].sum() > 0.0:
            return (
                f"bars of two bases came ({_list(factors)}), and the common ones have no volume to tell a split from a "
                f"unit, while others have; {AWAY}"
            )
        done.append(mine)
    order = ["ts", pl.col("moved").not_(), "source"]
    whole = pl.concat(done).sort(order).unique("ts", keep="last", maintain_order=True).sort("ts")
    records = []
    for number, (price, volume) in enumerate(groups):
        if is_one(price):
            continue
        left = whole.filter(pl.col("factor") == number)
        first, last = _span(left)
        proof = nearest(factors, float(min(price, 1 / price)))
        records.append(
            Rescaled(
                symbol=symbol,
                price=price,
                volume=volume,
                kind="unit" if is_one(volume) else "split",
                told=False,
                same=proof.same,
                common=proof.common,
                bars=left.height,
                first_ts=first,
                last_ts=last,
                together=True,
            )
        )
    return Together(whole.select(*BAR_SCHEMA, held=pl.col("source") > 0), tuple(records))


def _span(frame: pl.DataFrame) -> tuple[Any, Any]:
    """First and last stamp; None where there is none."""
    first, last = frame.select(first=pl.col("ts").min(), last=pl.col("ts").max()).row(0)
    return first, last


def _list(factors: Sequence[Factor]) -> str:
    return "prices times " + ", ".join(
        str(f.price) if isinstance(f.price, Fraction) else f"{f.price:.6g}" for f in factors
    )
