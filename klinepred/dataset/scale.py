"""In: feature rows of the train part. Out: `Scaler`, by which train, evaluation and prediction scale features alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from klinepred.dataset.memory import new_matrix
from klinepred.errors import ModelError

TINY: Final = 1e-30
"""Spreads below this are no measurements: Float32 keeps normal numbers down to 1.2e-38."""
BLOCK: Final = 65_536
"""Rows scaled at a time."""


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

    def apply(
        self,
        frame: pl.DataFrame,
        *,
        keep: np.ndarray | None = None,
        on_disk: bool = False,
        folder: Path | None = None,
    ) -> np.ndarray:
        """Scaled features [N, F], Float32, C order, finite.

        Parameters
        ----------
        keep
            Mask of the N rows of `frame` to take; default all of them.
        on_disk, folder
            Hold the answer in a file that is gone with it, see `klinepred.dataset.memory.new_matrix`.

        Raises
        ------
        ModelError
            A feature is absent; columns are taken by name, so their order does not matter.
        """
        missing = [name for name in self.names if name not in frame.columns]
        if missing:
            raise ModelError(
                "features of the model",
                expected=f"{len(self.names)} columns, among them {', '.join(missing[:3])}",
                got=f"a table without {len(missing)} of them",
                do="build the features with the set the model was trained on",
            )
        rows_N = None if keep is None else np.flatnonzero(keep)
        count = frame.height if rows_N is None else int(rows_N.size)
        x_NF = new_matrix(count, len(self.names), on_disk=on_disk, folder=folder)
        # some rows at a time: the table is never copied whole, and what is written lies close together
        for at in range(0, count, BLOCK):
            end = min(at + BLOCK, count)
            part = frame.slice(at, end - at) if rows_N is None else _pick(frame, rows_N[at:end])
            for index, name in enumerate(self.names):
                column_N = part.get_column(name).cast(pl.Float64).to_numpy()
                scaled_N = (column_N - self.centre_F[index]) / self.scale_F[index]
                np.clip(scaled_N, -self.clip, self.clip, out=scaled_N)
                x_NF[at:end, index] = np.nan_to_num(scaled_N, nan=0.0)
        return x_NF

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


def fit_scaler(frame: pl.DataFrame, names: tuple[str, ...], *, clip: float, keep: np.ndarray | None = None) -> Scaler:
    """Mean and standard deviation of each column; nulls do not count.

    Parameters
    ----------
    keep
        Mask of the rows of `frame` that are train rows; default: it holds no others.
    """
    centre_F = np.zeros(len(names))
    scale_F = np.ones(len(names))
    for index, name in enumerate(names):
        column = frame.get_column(name)
        column = column if keep is None else column.filter(pl.Series(keep))
        value = column.cast(pl.Float64).drop_nulls().to_numpy()
        if value.size:
            centre_F[index] = value.mean()
            spread = value.std()
            # a constant column: rounding leaves a spread of a few ulp of its level, whatever its unit
            scale_F[index] = spread if spread > max(1e-9 * abs(centre_F[index]), TINY) else 1.0
    return Scaler(names=names, centre_F=centre_F, scale_F=scale_F, clip=clip)


def _pick(frame: pl.DataFrame, rows: np.ndarray) -> pl.DataFrame:
    """Rows in ascending order; where none is missing between the first and the last, without a copy."""
    first, last = int(rows[0]), int(rows[-1])
    whole = last - first + 1 == rows.size
    return frame.slice(first, rows.size) if whole else frame[rows]
