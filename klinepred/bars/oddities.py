"""In: stored bars in order, with their slots. Out: what looks odd in them: jumps, spikes, stale prices, zero volume."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import polars as pl

from klinepred.bars.basis import USUAL
from klinepred.schema import PRICES, TS, VALUES

JUMP: Final = 0.25
"""Two closes in a row, one over 25 % above the other, are worth a look: an unadjusted split, another unit, news."""
SPIKE, SPIKE_SIZE = 0.05, 30.0
"""A high (low) beyond that of both neighbours by this share, and by so many times the symbol's median move between
closes, is a spike. Ordinary five minutes of a liquid stock stay ten times below the former; the latter lets symbols of
a few cents be as restless as they are. Twice the share where a break lies between: the first minutes after news that
came overnight swing that far."""
NEAR: Final = 0.03
"""A jump this near to a usual factor may be a split: the price moves on by a percent or two overnight. For 3 to 2, next
to which many a real move lies, a third of it. 5 to 4 and 4 to 3 are no hint: every jump just over the
threshold is near one of them."""
LEAST: Final = 1.5
ODD: Final[dict[str, pl.DataType]] = {
    "symbol": pl.String(),
    **dict.fromkeys(("zero_volume", "zero_run", "stale", "stale_run", "jumps", "spikes"), pl.Int64()),
}
JUMPS: Final[dict[str, pl.DataType]] = {
    "symbol": pl.String(),
    "ts": TS,
    "kind": pl.String(),
    "before_ts": TS,
    "before": pl.Float64(),
    "price": pl.Float64(),
    "ratio": pl.Float64(),
    "factor": pl.String(),
    "note": pl.String(),
}


def look_over(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Count what is odd per symbol, and list jumps and spikes.

    Parameters
    ----------
    rows
        symbol, ts, the five values, slot, segment; sorted by symbol and slot, each bar once.

    Returns
    -------
    tuple of polars.DataFrame
        `ODD`: bars of zero volume and the longest run of them without a missing bar between; the same for stale bars
        (see `_stale`); closes that jump; spikes. `JUMPS`: one row each. `kind` is jump (from the close before to this
        one) or spike (from the nearer neighbour's high or low to this one); `factor` the usual split it is near, such
        as 1/4, else null.
    """
    before = {
        name: pl.col(name).shift(1).over("symbol").alias(f"_{name}") for name in (*VALUES, "ts", "slot", "segment")
    }
    after = {
        name: pl.col(name).shift(-1).over("symbol").alias(f"{name}_") for name in ("high", "low", "close", "segment")
    }
    table = rows.select("symbol", "ts", *VALUES, "slot", "segment", *before.values(), *after.values())
    table = table.with_columns(
        move=(pl.col("close") / pl.col("_close")).log(),
        over=pl.min_horizontal(pl.col("high") / pl.col("_high"), pl.col("high") / pl.col("high_")).log(),
        under=pl.min_horizontal(pl.col("_low") / pl.col("low"), pl.col("low_") / pl.col("low")).log(),
        zero=pl.col("volume") == 0.0,
        stale=_stale(),
    )
    inner = pl.all_horizontal(pl.col("_close", "close_").is_not_null())
    usual = pl.col("move").abs().median().over("symbol").fill_null(0.0)
    whole = (pl.col("_segment") == pl.col("segment")) & (pl.col("segment_") == pl.col("segment"))
    share = pl.when(whole).then(math.log1p(SPIKE)).otherwise(math.log1p(2.0 * SPIKE))
    table = table.with_columns(
        jump=(pl.col("move").abs() > math.log1p(JUMP)).fill_null(False),
        spike=inner & (pl.max_horizontal("over", "under") > pl.max_horizontal(share, SPIKE_SIZE * usual)),
    )
    counts = table.group_by("symbol", maintain_order=True).agg(
        zero_volume=pl.col("zero").sum(), stale=pl.col("stale").sum(), jumps=pl.col("jump").sum(),
        spikes=pl.col("spike").sum(),
    )  # fmt: skip
    for name in ("zero", "stale"):
        counts = counts.join(_longest(table, name), on="symbol", how="left", maintain_order="left")
    return counts.select(pl.col(ODD.keys()).fill_null(0)).cast(ODD), _list(table)  # type: ignore[arg-type]


def _stale() -> pl.Expr:
    """A bar that repeats the one before without trade: flat at its close with no volume, or equal in all five values.

    Equal bars with volume count only if they are not flat: a quiet symbol may trade the same lot at one price twice,
    hardly between the same high and low.
    """
    flat = (pl.col("high") == pl.col("low")) & (pl.col("close") == pl.col("_close"))
    same = pl.all_horizontal(pl.col(name) == pl.col(f"_{name}") for name in PRICES)
    unsold = pl.col("volume") == 0.0
    again = same & (pl.col("volume") == pl.col("_volume")) & (pl.col("high") > pl.col("low"))
    return ((unsold & (flat | same)) | again).fill_null(False)


def _longest(table: pl.DataFrame, name: str) -> pl.DataFrame:
    """Per symbol the longest run of rows with `name`, as `name`_run; a missing bar ends a run."""
    on = pl.col(name)
    goes_on = on & on.shift(1).over("symbol").fill_null(False) & (pl.col("slot") == pl.col("_slot") + 1)
    runs = table.select("symbol", name, run=(~goes_on.fill_null(False)).cum_sum()).filter(name)
    lengths = runs.group_by("symbol", "run").agg(pl.len().cast(pl.Int64).alias("length"))
    return lengths.group_by("symbol").agg(pl.col("length").max().alias(f"{name}_run"))


def _list(table: pl.DataFrame) -> pl.DataFrame:
    jumps = table.filter("jump")
    back = (pl.col("close_") / pl.col("_close")).log().abs() < math.log1p(JUMP) / 2.0
    jumps = jumps.select(
        "symbol",
        "ts",
        kind=pl.lit("jump"),
        before_ts="_ts",
        before="_close",
        price="close",
        ratio=pl.col("move").exp(),
        back=back.fill_null(False),
    )
    jumps = jumps.with_columns(factor=_factors(jumps["ratio"])).with_columns(
        note=pl.when("back")
        .then(pl.lit("the next close is back where this one came from"))
        .when(pl.col("factor").is_not_null())
        .then(pl.lit("an unadjusted split, or another unit?"))
    )
    high = pl.col("over") >= pl.col("under")
    spikes = table.filter("spike").select(
        "symbol",
        "ts",
        kind=pl.lit("spike"),
        before_ts="_ts",
        before=pl.when(high).then(pl.max_horizontal("_high", "high_")).otherwise(pl.min_horizontal("_low", "low_")),
        price=pl.when(high).then("high").otherwise("low"),
        ratio=pl.when(high).then(pl.col("over")).otherwise(-pl.col("under")).exp(),
        factor=pl.lit(None, dtype=pl.String),
        note=pl.when(high)
        .then(pl.lit("its high is far above those of both neighbours"))
        .otherwise(pl.lit("its low is far below those of both neighbours")),
    )
    return pl.concat([jumps.select(JUMPS.keys()), spikes.select(JUMPS.keys())]).sort("symbol", "ts", "kind")


def _factors(ratios: pl.Series) -> pl.Series:
    """The usual split a ratio of closes is near, as text: 4 where the price rose fourfold, 1/4 where it fell so."""
    usual = np.log(np.array(sorted(float(factor) for factor in USUAL if factor >= LEAST)))
    names = [f"{math.exp(value):.4g}" for value in usual]
    size = np.abs(np.log(ratios.to_numpy()))
    right = np.clip(np.searchsorted(usual, size), 1, len(usual) - 1)
    nearest = np.where(size - usual[right - 1] < usual[right] - size, right - 1, right)
    close = np.abs(size - usual[nearest]) < np.where(usual[nearest] < math.log(2.0), NEAR / 3.0, NEAR)
    texts = [
        (names[place] if rose else f"1/{names[place]}") if near else None
        for place, rose, near in zip(nearest, ratios.to_numpy() > 1.0, close, strict=True)
    ]
    return pl.Series("factor", texts, dtype=pl.String)
