"""In: cleaned bars, the stored bars of the same range. Out: which are new, revised, unchanged; symbols to refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import polars as pl

from klinepred.schema import VALUES

CHANGE: Final = 0.0005
"""Closes that differ by less than this share tell nothing of a ratio."""
JUMP: Final = 0.01
"""Closes that differ by more than this share on a few bars already do."""
SAME_RATIO: Final = 0.004
"""Ratios within this share of their median are one ratio; rounding to cents of a 5-dollar stock stays inside."""
FEW, MANY = 3, 20
"""So many bars must agree on a ratio above `JUMP` (fewer if they are the whole overlap), or on any ratio."""
BLOCK: Final = 0.9
"""Share of the common bars between the first and the last of that ratio that must have it."""
STRANGE: Final = 0.05
"""Where over half of the overlap jumps, by differing ratios of this median size, two instruments share one name."""
FACTORS: Final = (2, 3, 4, 5, 6, 7, 8, 10, 15, 20, 25, 30, 40, 50, 100, 1000)


@dataclass(frozen=True)
class Reconciled:
    """What a delivery changes.

    Attributes
    ----------
    new, revised
        Rows to store, in the shape they came; `revised` ones replace a stored row of other values.
    counts
        Per symbol: `new`, `revised`, `unchanged`.
    refused
        Symbol to the reason why none of its rows may be stored.
    doubtful
        Symbols not refused of which some closes differ by more than `CHANGE`: with more bars they might be.
    """

    new: pl.DataFrame
    revised: pl.DataFrame
    counts: pl.DataFrame
    refused: Mapping[str, str]
    doubtful: frozenset[str] = frozenset()


def reconcile(received: pl.DataFrame, stored: pl.DataFrame) -> Reconciled:
    """Compare received bars with stored ones, bar by bar; stored bars that were not received stay out of it.

    Parameters
    ----------
    received, stored
        `symbol`, `ts` and the five values, unique by symbol and ts.
    """
    if stored.is_empty():
        refused, apart = dict[str, str](), pl.DataFrame(schema={"symbol": pl.String})
        state = received.with_columns(_state=pl.lit("new"))
    else:
        old = stored.select("symbol", "ts", *(pl.col(name).alias(f"_{name}") for name in VALUES))
        joined = received.join(old, on=["symbol", "ts"], how="left", maintain_order="left")
        equal = pl.all_horizontal(pl.col(name) == pl.col(f"_{name}") for name in VALUES)
        joined = joined.with_columns(
            _state=pl.when(pl.col("_close").is_null())
            .then(pl.lit("new"))
            .when(equal)
            .then(pl.lit("unchanged"))
            .otherwise(pl.lit("revised"))
        )
        apart = _apart(joined.filter(pl.col("_state") == "revised"))
        refused = _refuse(apart, joined)
        state = joined.drop(f"_{name}" for name in VALUES)
    if refused:
        state = state.filter(~pl.col("symbol").is_in(list(refused)))
    counts = state.group_by("symbol").agg(
        *((pl.col("_state") == name).sum().alias(name) for name in ("new", "revised", "unchanged"))
    )
    return Reconciled(
        new=state.filter(pl.col("_state") == "new").drop("_state"),
        revised=state.filter(pl.col("_state") == "revised").drop("_state"),
        counts=counts.sort("symbol"),
        refused=refused,
        doubtful=frozenset(apart.get_column("symbol")) - set(refused),
    )


def _apart(changed: pl.DataFrame) -> pl.DataFrame:
    """symbol, ts and the ratio of received to stored close where it is not about 1."""
    ratio = changed.select("symbol", "ts", ratio=pl.col("close") / pl.col("_close"))
    return ratio.filter((pl.col("ratio") - 1.0).abs() > CHANGE)


def _refuse(apart: pl.DataFrame, joined: pl.DataFrame) -> dict[str, str]:
    """Symbols whose ratios tell of a split, another unit, or another instrument."""
    if apart.is_empty():
        return {}
    close = pl.min_horizontal(SAME_RATIO, (pl.col("median") - 1.0).abs() / 3.0)
    verdict = (
        apart.with_columns(median=pl.col("ratio").median().over("symbol"))
        .with_columns(same=(pl.col("ratio") / pl.col("median") - 1.0).abs() <= close)
        .group_by("symbol")
        .agg(
            median=pl.col("median").first(),
            jumped=((pl.col("ratio") - 1.0).abs() > JUMP).sum(),
            same=pl.col("same").sum(),
            size=pl.col("ratio").log().abs().median(),
            first=pl.col("ts").filter("same").min(),
            last=pl.col("ts").filter("same").max(),
        )
    )
    common = joined.filter(pl.col("_state") != "new").select("symbol", "ts")
    sizes = (
        common.join(verdict.select("symbol", "first", "last"), on="symbol")
        .group_by("symbol")
        .agg(overlap=pl.len(), block=pl.col("ts").is_between("first", "last").sum())
    )
    judged = verdict.join(sizes, on="symbol").iter_rows(named=True)
    return {
        row["symbol"]: text for row in judged if (text := _reason(**{k: v for k, v in row.items() if k != "symbol"}))
    }


def _reason(
    *,
    median: float,
    jumped: int,
    same: int,
    size: float,
    first: datetime | None,
    last: datetime | None,
    overlap: int,
    block: int,
) -> str | None:
    """Why a symbol is refused: `same` of the `block` common bars from `first` to `last` have the ratio `median`."""
    enough = same >= MANY or (abs(median - 1.0) > JUMP and (same >= FEW or same == overlap))
    if enough and same >= BLOCK * block and (overlap > 1 or _usual(median)):
        return (
            f"received closes are {_factor(median)} the stored ones on {same:,} of {overlap:,} common bars "
            f"({first:%Y-%m-%d %H:%MZ} to {last:%Y-%m-%d %H:%MZ}): a split or another unit of price; "
            "ingest its whole history on one basis into a fresh workspace"
        )
    if jumped > max(FEW, overlap // 2) and size > STRANGE:
        return (
            f"received closes differ from the stored ones by {size:.0%} in the middle on {jumped:,} of {overlap:,} "
            "common bars: another instrument under this name?"
        )
    return None


def _usual(ratio: float) -> bool:
    """Whether a single pair of closes already looks like a split or pence against pounds."""
    big = max(ratio, 1.0 / ratio)
    return any(abs(big / factor - 1.0) <= SAME_RATIO for factor in (*FACTORS, 1.5, 1.25))


def _factor(ratio: float) -> str:
    big = max(ratio, 1.0 / ratio)
    near = next((f for f in FACTORS if abs(big / f - 1.0) <= SAME_RATIO), None)
    shown = f"{near}" if near else f"{big:.4g}"
    return f"{shown} times" if ratio > 1.0 else f"1/{shown} of"
