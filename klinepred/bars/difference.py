"""In: two sets of data files of the bars table. Out: how the bars in them differ, per symbol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from klinepred.bars.parts import Part
from klinepred.bars.tables import BARS, scan_parts
from klinepred.objects import Place

VALUES: Final = ("open", "high", "low", "close", "volume")


def compare_parts(folder: Place, old: Sequence[Part], new: Sequence[Part]) -> pl.DataFrame:
    """Bars only in `old`, only in `new`, and in both with other values; month by month, so that memory stays bounded.

    Parameters
    ----------
    folder
        Of the bars table.

    Returns
    -------
    polars.DataFrame
        symbol, gone, back, changed; only symbols with a difference, sorted.
    """
    found = [pl.DataFrame(schema={"symbol": pl.String, "gone": pl.Int64, "back": pl.Int64, "changed": pl.Int64})]
    for month in sorted({str(part.month) for part in (*old, *new)}):
        before, after = (
            scan_parts(folder, BARS, [part for part in parts if str(part.month) == month]) for parts in (old, new)
        )
        both = before.join(after, on=["symbol", "ts"], how="full", coalesce=True, suffix="_new")
        differs = pl.any_horizontal(pl.col(name) != pl.col(f"{name}_new") for name in VALUES)
        counts = both.group_by("symbol").agg(
            gone=pl.col("close_new").is_null().sum().cast(pl.Int64),
            back=pl.col("close").is_null().sum().cast(pl.Int64),
            changed=differs.sum().cast(pl.Int64),
        )
        found.append(counts.collect())
    total = pl.concat(found).group_by("symbol").agg(pl.all().sum()).sort("symbol")
    return total.filter(pl.any_horizontal(pl.col("gone", "back", "changed") > 0))
