"""In: bars. Out: the same bars with short stretches changed all over; which rows between must not have noticed."""

# Shapes: N rows, sorted by symbol and ts.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from klinepred.audit.futures import SEED
from klinepred.calendar import place
from klinepred.features.spec import Feature

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

SCALES: Final = ((4, 4, 1.0), (32, 8, 0.4), (128, 16, 0.12), (512, 32, 0.03), (2048, 64, 0.01))
"""Bars of an island, changed bars between two, share of all bars that are to stand at the end of an island once."""
_MOVE: Final = 0.002


@dataclass(frozen=True)
class Islands:
    """Bars of which short stretches were changed.

    Attributes
    ----------
    bars
        All rows of the original, in its order.
    bars_N, sessions_N
        Of a row that is as it was: such bars of its symbol in one stretch up to it, its own included; sessions that
        begin among them, its own included. 0 where the row was changed.
    """

    bars: pl.DataFrame
    bars_N: Ints
    sessions_N: Ints

    def ready(self, feature: Feature) -> Flags:
        """Rows [N] from whose lookback on nothing was changed."""
        enough_N = self.bars_N >= feature.lookback_bars
        return enough_N & (self.sessions_N > feature.lookback_sessions) if feature.lookback_sessions else enough_N


def islands(bars: pl.DataFrame, features: tuple[Feature, ...], *, effort: float) -> Iterator[Islands]:
    """Change short stretches of every symbol, in other places each time.

    A row whose lookback lies on an island shows a feature that looks further back or ahead of it. The end of an island
    shows one that looks a single bar ahead, and ends come to lie nearly everywhere, not at a few moments only.

    Parameters
    ----------
    features
        Islands are as long as these need.
    effort
        1 = of features of one bar, every row comes to lie at an end; of others as many as `SCALES` tells.
    """
    rng = np.random.default_rng(SEED + 3)
    fresh_N = _first_of_sessions(bars)
    sizes = bars.get_column("symbol").rle().struct.field("len").to_numpy().astype(np.int64)
    least = 0
    for length, between, share in SCALES:
        wanted = any(least < feature.lookback_bars <= length for feature in features)
        least = length
        if not wanted or length >= 2 * int(sizes.max(initial=0)):
            continue
        period = length + between
        passes = min(period, max(1, round(effort * share * period)))
        shift_S = rng.integers(0, period, sizes.size)
        for number in range(passes):
            phase_N = _phases(sizes, shift_S + number * period // passes, period)
            kept_N = phase_N < length
            yield Islands(_moved(bars, ~kept_N, rng), *_known(phase_N, kept_N, fresh_N, sizes))


def _phases(sizes: Ints, shift_S: Ints, period: int) -> Ints:
    """Place of each row in the wheel of island and change."""
    return np.concatenate([(np.arange(size) + shift) % period for size, shift in zip(sizes, shift_S, strict=True)])


def _known(phase_N: Ints, kept_N: Flags, fresh_N: Flags, sizes: Ints) -> tuple[Ints, Ints]:
    """`Islands.bars_N`, `Islands.sessions_N`."""
    begin_N = phase_N == 0
    begin_N[np.cumsum(sizes) - sizes] = True
    row_N = np.arange(begin_N.size)
    first_N = np.maximum.accumulate(np.where(begin_N, row_N, 0))
    begun_N = np.cumsum(fresh_N)
    own_N = begun_N - begun_N[first_N] + fresh_N[first_N]
    return np.where(kept_N, row_N - first_N + 1, 0), np.where(kept_N, own_N, 0)


def _first_of_sessions(bars: pl.DataFrame) -> Flags:
    """The first stored bar of each session of a symbol [N]."""
    spots = place(bars).select("symbol", "session")
    return (spots != spots.shift(1)).select(pl.any_horizontal(pl.all()).fill_null(True)).to_series().to_numpy()


def _moved(bars: pl.DataFrame, which_N: Flags, rng: np.random.Generator) -> pl.DataFrame:
    """Some bars at other prices near by, of another width, with another volume; still bars that could be.

    Near by: a lookback is declared for histories such as markets have, and an average that forgets slowly carries a
    price of tenfold further than one of a few thousandths.
    """
    count = bars.height
    level_N, wider_N, narrower_N = rng.normal(0.0, _MOVE, count), *np.abs(rng.normal(0.0, _MOVE / 2.0, (2, count)))
    factors = {
        "open": np.exp(level_N),
        "high": np.exp(level_N + wider_N),
        "low": np.exp(level_N - narrower_N),
        "close": np.exp(level_N),
    }
    which = pl.Series(which_N)
    volume = pl.col("volume") * pl.Series(np.exp(rng.normal(0.0, 1.0, count))) + pl.Series(rng.integers(0, 2, count))
    return bars.with_columns(
        *(
            pl.when(which).then(pl.col(name) * pl.Series(factor)).otherwise(name).alias(name)
            for name, factor in factors.items()
        ),
        volume=pl.when(which).then(volume).otherwise("volume"),
    )
