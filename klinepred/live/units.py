"""In: the trailing bars of many symbols. Out: the kind of step ahead of each one's newest bar, and its unit."""

# Shapes: N symbols with a new bar.

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from klinepred.dataset.target import BREAK, WITHIN_BARS, add_targets
from klinepred.features.newest import CODE
from klinepred.live.trail import Ints, Trail
from klinepred.schema import CALENDAR
from klinepred.settings import DatasetSettings

RAW = {"target": "raw"}
"""Of the target itself nothing is needed, so not its mean over the universe either."""


def units_of(
    trail: Trail, codes: Ints, clocks: Sequence[str], settings: DatasetSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Kind (Int8 [N]) and unit (Float32 [N], NaN = not known yet) as `klinepred.dataset.target.add_targets` has them.

    A step within a stretch of trading is measured by the last bars alone. One across a break is measured by the breaks
    before, of which the bars on either side are enough.

    Parameters
    ----------
    clocks
        Of all symbols, by code.
    """
    kind_N, vol_N = _units(trail, trail.spots(codes, WITHIN_BARS + 2), clocks, settings)
    breaks = np.flatnonzero(kind_N == BREAK)
    if breaks.size:
        spots = trail.edges(codes[breaks], trail.keep, last=WITHIN_BARS + 2)
        kind_N[breaks], vol_N[breaks] = _units(trail, spots, clocks, settings)
    return kind_N, vol_N


def _units(
    trail: Trail, spots: Ints, clocks: Sequence[str], settings: DatasetSettings
) -> tuple[np.ndarray, np.ndarray]:
    closes = trail.frame(spots, ("ts", "close")).rename({CODE: "symbol"})
    names = pl.Series(CALENDAR, clocks, dtype=pl.String)
    closes = closes.with_columns(names.gather(closes.get_column("symbol")))
    last = add_targets(closes, settings.model_copy(update=RAW), universe=())
    last = last.group_by("symbol", maintain_order=True).last()
    vol = last.get_column("vol").cast(pl.Float32).fill_null(float("nan"))
    return last.get_column("kind").to_numpy().astype(np.int8), vol.to_numpy().copy()
