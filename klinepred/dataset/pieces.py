"""In: features, in memory or kept in files. Out: the same rows, some whole symbols at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from klinepred.dataset.memory import fits_memory, free_bytes, new_matrix
from klinepred.dataset.target import blocks, cuts_of
from klinepred.errors import FeatureError
from klinepred.features.build import FeatureFrame
from klinepred.features.cache import Cached, KeptFile
from klinepred.features.columns import plans
from klinepred.features.kept import whole


def height(table: FeatureFrame | Cached) -> int:
    """How many rows all pieces together have at the most."""
    return table.bars if isinstance(table, Cached) else table.frame.height


def pieces(table: FeatureFrame | Cached, *, folder: Path | None = None) -> Iterator[pl.DataFrame]:
    """The rows of `table` in their order, as columns symbol, ts, close and the features; no symbol in two pieces.

    Of kept files, nothing but a piece and the cross-section's columns is held at once; the latter in a file where they
    do not fit into the free memory.

    Parameters
    ----------
    folder
        Where that file lies, see `klinepred.dataset.memory.new_matrix`.

    Raises
    ------
    FeatureError
        A file is not as it was written.
    """
    if isinstance(table, Cached):
        yield from _kept(table, folder)
    else:
        yield from blocks(table.frame)


def _kept(table: Cached, folder: Path | None) -> Iterator[pl.DataFrame]:
    own, across = (plan.names for plan in plans(table.features, pl.Float32()))
    sides_NK, at = _sides(table, across, folder)
    for files in _groups(table.own):
        parts = []
        for file in files:
            rows = whole(file.path, ["ts", "close", *own]).select(pl.lit(file.symbol).alias("symbol"), pl.all())
            if across:
                first = at[file.path.stem]
                at[file.path.stem] = end = first + file.rows
                sides_BK = sides_NK[first:end]
                rows = rows.with_columns(
                    pl.Series(name, sides_BK[:, index], nan_to_null=True) for index, name in enumerate(across)
                )
            parts.append(rows)
        piece = pl.concat(parts).select("symbol", "ts", "close", *table.features.names)
        yield piece if table.until is None else piece.filter(pl.col("ts") <= table.until)


def _groups(files: tuple[KeptFile, ...]) -> Iterator[tuple[KeptFile, ...]]:
    """The files of whole symbols."""
    rows, ends, numbers = 0, [], []
    for number, (file, after) in enumerate(zip(files, (*files[1:], None), strict=True), 1):
        rows += file.rows
        if after is None or after.symbol != file.symbol:
            ends.append(rows)
            numbers.append(number)
    last = dict(zip([0, *ends], [0, *numbers], strict=True))
    return (files[last[low] : last[high]] for low, high in pairwise(cuts_of(ends)))


def _sides(table: Cached, names: list[str], folder: Path | None) -> tuple[np.ndarray, dict[str, int]]:
    """All features of the cross-section, a quarter after another, by symbol and time; where each quarter begins."""
    sizes: dict[str, int] = {}
    for file in table.own:
        sizes[file.path.stem] = sizes.get(file.path.stem, 0) + file.rows
    on_disk = not fits_memory(table.bars, len(names), free=free_bytes())
    sides_NK = new_matrix(table.bars, len(names), on_disk=on_disk, folder=folder)
    at, begin = 0, {}
    for path in table.across:
        quarter = path.stem.partition("-")[0]
        rows = whole(path, names).select(names)
        if rows.height != sizes[quarter]:
            raise FeatureError(
                f"computed features in {path.parent}",
                expected=f"{sizes[quarter]:,} rows in {path.name}, as many as the symbols have in {quarter}",
                got=f"{rows.height:,}",
                do="run the command again; data/features of the workspace may be deleted at any time",
            )
        begin[quarter] = at
        sides_NK[at : at + rows.height] = rows.to_numpy()
        at += rows.height
    return sides_NK, begin
