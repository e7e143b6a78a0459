"""In: two frames of features over the same rows. Out: which columns differ, bit by bit or beyond a tolerance, where."""

# Shapes: N rows.

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

TOLERANCE: Final = 1e-6
"""Of the value or of the spread of its column, whichever is larger."""

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


def same_rows(one: pl.DataFrame, two: pl.DataFrame) -> bool:
    """Whether symbol and ts are the same, row by row."""
    return one.select("symbol", "ts").equals(two.select("symbol", "ts"))


def bit_faults(one: pl.DataFrame, two: pl.DataFrame, names: Sequence[str]) -> dict[str, str]:
    """By column that is not the same bit by bit, its first such row in words."""
    found = {}
    for name in names:
        a, b = one.get_column(name), two.get_column(name)
        differ_N = _bits(a) != _bits(b)
        differ_N |= a.is_null().to_numpy() != b.is_null().to_numpy()
        if differ_N.any():
            found[name] = _first(one, two, name, differ_N)
    return found


def _bits(values: pl.Series) -> npt.NDArray[np.int64]:
    value_N = values.fill_null(0.0).to_numpy()
    return value_N.view(np.int32 if value_N.dtype == np.float32 else np.int64).astype(np.int64)


def distances(one: pl.Series, two: pl.Series, *, spread: float) -> Floats:
    """|a - b| over max(|a|, spread) [N]; infinite where only one of them is known, 0 where neither is."""
    a_N, b_N = (values.cast(pl.Float64).to_numpy() for values in (one, two))
    unit_N = np.maximum(np.abs(a_N), spread)
    with np.errstate(invalid="ignore"):
        far_N = np.abs(a_N - b_N) / np.where(unit_N > 0.0, unit_N, 1.0)
    known_a, known_b = np.isfinite(a_N), np.isfinite(b_N)
    return np.where(known_a & known_b, far_N, np.where(known_a == known_b, 0.0, np.inf))


def spread_of(values: pl.Series) -> float:
    """Standard deviation of the known values; 0 where there are none."""
    value_N = values.cast(pl.Float64).drop_nulls().to_numpy()
    value_N = value_N[np.isfinite(value_N)]
    return float(value_N.std()) if value_N.size else 0.0


def _first(one: pl.DataFrame, two: pl.DataFrame, name: str, differ_N: Flags) -> str:
    return say(one, two, name, int(np.flatnonzero(differ_N)[-1]))


def say(one: pl.DataFrame, two: pl.DataFrame, name: str, row: int) -> str:
    """One row of two frames in words."""
    symbol, ts, a = one.select("symbol", "ts", name).row(row)
    return f"{symbol} {ts:%Y-%m-%dT%H:%MZ}: {show(a)} became {show(two.get_column(name)[row])}"


def show(value: float | None) -> str:
    """A number, or that there is none."""
    return "masked" if value is None else f"{value:.6g}"
