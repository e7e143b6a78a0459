"""In: feature rows of the train part. Out: `Scaler`, by which train, evaluation and prediction scale features alike."""

# Shapes: N rows, B rows of a block, M of them chosen, F features.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from klinepred.errors import ModelError

TINY: Final = 1e-30
"""Spreads below this are no measurements: Float32 keeps normal numbers down to 1.2e-38."""
BLOCK: Final = 65_536
"""Rows measured at a time."""
STEP: Final = 8_192
"""Rows scaled at a time: few enough to stay in the processor's cache."""


@dataclass(frozen=True)
class Scaler:
    """(value - centre) / scale, clipped at +-`clip`; a masked value becomes 0, the centre.

    Attributes
    ----------
    names
        The F features, in order.
    centre_F, scale_F
        Mean and population standard deviation over the train rows, Float64. A column that is constant there, or
        masked throughout, has scale 1.
    """

    names: tuple[str, ...]
    centre_F: np.ndarray
    scale_F: np.ndarray
    clip: float

    def apply(self, frame: pl.DataFrame) -> np.ndarray:
        """Scaled features [N, F], Float32, C order, finite.

        Raises
        ------
        ModelError
            A feature is absent; columns are taken by name, so their order does not matter.
        """
        self.check(frame.columns)
        x_NF = np.empty((frame.height, len(self.names)), dtype=np.float32)
        for at in range(0, frame.height, STEP):
            part = frame.slice(at, STEP).select(pl.col(self.names).cast(pl.Float64))
            x_NF[at : at + STEP] = self._scaled(part.to_numpy())
        return x_NF

    def scale(self, x_NF: np.ndarray) -> None:
        """Scale raw features [N, F] (NaN = masked), in the scaler's order, where they lie: no second matrix is made."""
        for at in range(0, len(x_NF), STEP):
            x_NF[at : at + STEP] = self._scaled(x_NF[at : at + STEP].astype(np.float64))

    def check(self, columns: Sequence[str]) -> None:
        """Nothing where all features are among `columns`. Errors as `apply`."""
        missing = [name for name in self.names if name not in columns]
        if missing:
            raise ModelError(
                "features of the model",
                expected=f"{len(self.names)} columns, among them {', '.join(missing[:3])}",
                got=f"a table without {len(missing)} of them",
                do="build the features with the set the model was trained on",
            )

    def _scaled(self, value_BF: np.ndarray) -> np.ndarray:
        scaled_BF = (value_BF - self.centre_F) / self.scale_F
        np.clip(scaled_BF, -self.clip, self.clip, out=scaled_BF)
        np.nan_to_num(scaled_BF, copy=False, nan=0.0)
        return np.asarray(scaled_BF)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; floats keep every digit."""
        return {
            "names": list(self.names),
            "centre": self.centre_F.tolist(),
            "scale": self.scale_F.tolist(),
            "clip": self.clip,
        }

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Scaler:
        """The inverse of `to_dict`."""
        return cls(
            names=tuple(table["names"]),
            centre_F=np.asarray(table["centre"], dtype=np.float64),
            scale_F=np.asarray(table["scale"], dtype=np.float64),
            clip=float(table["clip"]),
        )


def fit_scaler(frame: pl.DataFrame, names: tuple[str, ...], *, clip: float) -> Scaler:
    """Mean and standard deviation of each column of train rows; nulls do not count."""
    values = pl.col(names).cast(pl.Float64)
    parts = (frame.slice(at, BLOCK).select(values).to_numpy() for at in range(0, frame.height, BLOCK))
    return _scaler(parts, names, clip=clip)


def fit_rows(x_NF: np.ndarray, train_N: np.ndarray, names: tuple[str, ...], *, clip: float) -> Scaler:
    """As `fit_scaler`, of those rows of raw features [N, F] (NaN = masked) that the mask `train_N` [N] chooses."""
    return _scaler(chosen_blocks(x_NF, train_N), names, clip=clip)


def chosen_blocks(x_NF: np.ndarray, mask_N: np.ndarray) -> Iterable[np.ndarray]:
    """The rows of a mask, `BLOCK` at a time: blocks depend on nothing but the chosen rows."""
    rows_M = np.flatnonzero(mask_N)
    return (x_NF[rows_M[at : at + BLOCK]] for at in range(0, rows_M.size, BLOCK))


def moments(parts: Iterable[np.ndarray], features: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and population standard deviation [F] of the rows of all parts, Float64; NaN does not count, of none 0.

    One pass: of each part the sum and the squares about its own mean; then the parts are put together (Chan, Golub and
    LeVeque, Algorithms for computing the sample variance, 1983). Of one part it is what NumPy computes, to the last
    bit; of more, it differs from the sum over all rows by that sum's own rounding, some 1e-15 of the spread.
    """
    counts, sums, squares = [], [], []
    for part_BF in parts:
        value_BF = np.asarray(part_BF, dtype=np.float64, order="F")  # a column lies in one piece
        count_F, sum_F, square_F = np.zeros(features), np.zeros(features), np.zeros(features)
        for index in range(features):
            known = value_BF[~np.isnan(value_BF[:, index]), index]
            if known.size:
                count_F[index], sum_F[index] = known.size, known.sum()
                square_F[index] = ((known - sum_F[index] / known.size) ** 2).sum()
        counts.append(count_F)
        sums.append(sum_F)
        squares.append(square_F)
    if not counts:
        return np.zeros(features), np.zeros(features)
    count_PF, sum_PF, square_PF = np.array(counts), np.array(sums), np.array(squares)
    count_F = np.maximum(count_PF.sum(axis=0), 1.0)
    mean_F = sum_PF.sum(axis=0) / count_F
    away_PF = sum_PF / np.maximum(count_PF, 1.0) - mean_F
    return mean_F, np.sqrt((square_PF + count_PF * away_PF**2).sum(axis=0) / count_F)


def _scaler(parts: Iterable[np.ndarray], names: tuple[str, ...], *, clip: float) -> Scaler:
    centre_F, spread_F = moments(parts, len(names))
    # a constant column: rounding leaves a spread of a few ulp of its level, whatever its unit
    known_F = spread_F > np.maximum(1e-9 * np.abs(centre_F), TINY)
    return Scaler(names=names, centre_F=centre_F, scale_F=np.where(known_F, spread_F, 1.0), clip=clip)
