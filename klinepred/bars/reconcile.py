"""In: received bars, the stored bars of the same range. Out: which are new, revised, unchanged."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from klinepred.schema import VALUES

STATE = "_state"


@dataclass(frozen=True)
class Reconciled:
    """What a delivery changes.

    Attributes
    ----------
    new, revised
        Rows to store, in the shape they came; `revised` ones replace a stored row of other values.
    counts
        Per symbol: `new`, `revised`, `unchanged`.
    """

    new: pl.DataFrame
    revised: pl.DataFrame
    counts: pl.DataFrame


def compare(received: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
    """Received bars with `_open` … `_volume` of the stored bar of the same stamp, null where there is none.

    Parameters
    ----------
    received, stored
        `symbol`, `ts` and the five values, unique by symbol and ts; the order of `received` is kept.
    """
    if stored.is_empty():
        return received.with_columns(pl.lit(None, pl.Float64).alias(f"_{name}") for name in VALUES)
    ends = received.select(low=pl.col("ts").min(), high=pl.col("ts").max()).row(0)
    old = stored.filter(pl.col("ts").is_between(*ends))  # all else has no counterpart
    old = old.select("symbol", "ts", *(pl.col(name).alias(f"_{name}") for name in VALUES))
    return received.join(old, on=["symbol", "ts"], how="left", maintain_order="left")


def reconcile(compared: pl.DataFrame) -> Reconciled:
    """Tell bars apart one by one; stored bars that were not received stay out of it.

    Parameters
    ----------
    compared
        What `compare` gave.
    """
    if compared.get_column("_close").null_count() == compared.height:
        new = compared.drop(f"_{name}" for name in VALUES)
        counts = new.group_by("symbol").agg(new=pl.len(), revised=pl.lit(0, pl.UInt32), unchanged=pl.lit(0, pl.UInt32))
        return Reconciled(new=new, revised=new.clear(), counts=counts.sort("symbol"))
    equal = pl.all_horizontal(pl.col(name) == pl.col(f"_{name}") for name in VALUES)
    state = compared.with_columns(
        pl.when(pl.col("_close").is_null())
        .then(pl.lit("new"))
        .when(equal)
        .then(pl.lit("unchanged"))
        .otherwise(pl.lit("revised"))
        .alias(STATE)
    ).drop(f"_{name}" for name in VALUES)
    counts = state.group_by("symbol").agg(
        *((pl.col(STATE) == name).sum().alias(name) for name in ("new", "revised", "unchanged"))
    )
    return Reconciled(
        new=state.filter(pl.col(STATE) == "new").drop(STATE),
        revised=state.filter(pl.col(STATE) == "revised").drop(STATE),
        counts=counts.sort("symbol"),
    )
