"""In: bars just stored, those around them. Out: steps of the price by the factor of a split or unit, for a remark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import polars as pl

from klinepred.bars.basis import USUAL, in_words
from klinepred.bars.isolated import TICKS, tick_of
from klinepred.bars.store import scan_rows
from klinepred.paths import Workspace
from klinepred.schema import BAR, BAR_SCHEMA, PRICES

WITHIN: Final = 0.03
"""A step this close to a usual factor looks like one; markets move while they are closed."""
LEAST: Final = 2.0
SHOWN: Final = 3


@dataclass(frozen=True)
class Step:
    """Two neighbouring bars of a symbol between which the price changes by a usual factor."""

    symbol: str
    before: datetime
    after: datetime
    close: float
    open: float


def find_steps(fresh: pl.DataFrame, around: pl.DataFrame) -> list[Step]:
    """Steps next to at least one of the `fresh` bars.

    Parameters
    ----------
    fresh, around
        Bars just added, sorted by symbol and ts, and the other stored bars around them; at least `BAR_SCHEMA`, no stamp
        of a symbol twice.
    """
    if fresh.is_empty():
        return []
    frames = [frame.select(*BAR_SCHEMA, fresh=pl.lit(own)) for frame, own in ((fresh, True), (around, False))]
    spans = [frame.group_by("symbol").agg(pl.col("low").min(), pl.col("high").max()) for frame in frames]
    wide = pl.concat(spans).group_by("symbol").agg(pl.col("low").min(), pl.col("high").max())
    wide = wide.filter(pl.col("high") >= LEAST * (1.0 - WITHIN) * pl.col("low")).select("symbol")
    if wide.is_empty():
        return []
    bars = pl.concat([frame.join(wide, on="symbol", how="semi", maintain_order="left") for frame in frames])
    bars = bars.sort("symbol", "ts") if around.height else bars
    last = pl.col("close", "ts", "symbol", "fresh").shift(1).name.prefix("_")
    ratio = pl.col("open") / pl.col("_close")
    big = pl.max_horizontal(ratio, 1.0 / ratio)
    factors = [float(factor) for factor in USUAL if factor >= LEAST]
    usual = pl.any_horizontal((big / factor - 1.0).abs() <= WITHIN for factor in factors)
    steps = bars.with_columns(last).filter(
        (pl.col("symbol") == pl.col("_symbol")) & (pl.col("fresh") | pl.col("_fresh")) & usual
    )
    found = []
    for (symbol,), part in steps.group_by("symbol", maintain_order=True):
        prices = bars.filter(pl.col("symbol") == symbol).select(PRICES).to_numpy().ravel()
        clear = part.filter((pl.col("open") - pl.col("_close")).abs() > TICKS * tick_of(prices))
        found += [Step(*row) for row in clear.select("symbol", "_ts", "ts", "_close", "open").iter_rows()]
    return found


def still_there(space: Workspace, steps: Sequence[Step]) -> list[Step]:
    """Those of `steps` that are in the store now: nothing came in between, nothing was rescaled or revised."""
    out = []
    for symbol in dict.fromkeys(step.symbol for step in steps):
        mine = [step for step in dict.fromkeys(steps) if step.symbol == symbol]
        first, last = min(step.before for step in mine), max(step.after for step in mine)
        rows = scan_rows(space, start=first, end=last + BAR).filter(pl.col("symbol") == symbol).sort("ts")
        pairs = rows.select(pl.col("ts", "close").shift(1).name.prefix("_"), "ts", "open").filter(
            pl.col("ts").is_in([step.after for step in mine])
        )
        there = set(pairs.collect().iter_rows())
        out += [step for step in mine if (step.before, step.close, step.after, step.open) in there]
    return out


def in_lines(steps: Sequence[Step], *, asked: bool = False) -> list[str]:
    """One line a symbol: the first few steps, and where to look; `asked`: stored bars were to be rescaled."""
    vain = "; --rescale had no effect on it, since no common bars show the ratio" if asked else ""
    lines = []
    for symbol in dict.fromkeys(step.symbol for step in steps):
        mine = [step for step in steps if step.symbol == symbol]
        texts = []
        for step in mine[:SHOWN]:
            ratio = step.open / step.close
            big = max(ratio, 1.0 / ratio)
            near = min((factor for factor in USUAL if factor >= LEAST), key=lambda f: abs(big / float(f) - 1.0))
            words = in_words(near if ratio > 1.0 else 1 / near)
            texts.append(
                f"the open of {step.after:%Y-%m-%d %H:%MZ}, {step.open:.6g}, is about {words} the close before it, "
                f"{step.close:.6g} ({step.before:%Y-%m-%d %H:%MZ})"
            )
        more = f", and {len(mine) - SHOWN:,} more such steps" if len(mine) > SHOWN else ""
        lines.append(
            f"{symbol}: {'; '.join(texts)}{more}: stored, but it looks like a split or another unit that the bars are "
            f"not adjusted for{vain}; look at klinepred bars check --symbols {symbol}"
        )
    return lines
