"""In: feature rows of the train part. Out: `Scaler`, by which train, evaluation and prediction scale features alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from klinepred.errors import ModelError


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
        missing = [name for name in self.names if name not in frame.columns]
        if missing:
            raise ModelError(
                "features of the model",
                expected=f"{len(self.names)} columns, among them {', '.join(missing[:3])}",
                got=f"a table without {len(missing)} of them",
                do="build the features with the set the model was trained on",
            )
        x_NF = np.zeros((frame.height, len(self.names)), dtype=np.float32)
        for index, name in enumerate(self.names):
            column_N = frame.get_column(name).cast(pl.Float64).to_numpy()
            scaled_N = (column_N - self.centre_F[index]) / self.scale_F[index]
            np.clip(scaled_N, -self.clip, self.clip, out=scaled_N)
            x_NF[:, index] = np.nan_to_num(scaled_N, nan=0.0)
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


def fit_scaler(frame: pl.DataFrame, names: tuple[str, ...], *, clip: float) -> Scaler:
    """Mean and standard deviation of each column of `frame`, which must hold train rows only; nulls do not count."""
    centre_F = np.zeros(len(names))
    scale_F = np.ones(len(names))
    for index, name in enumerate(names):
        column = frame.get_column(name).cast(pl.Float64).drop_nulls().to_numpy()
        if column.size:
            centre_F[index] = column.mean()
            spread = column.std()
            # a constant column: rounding leaves a spread of a few ulp of its level
            scale_F[index] = spread if spread > 1e-9 * max(1.0, abs(centre_F[index])) else 1.0
    return Scaler(names=names, centre_F=centre_F, scale_F=scale_F, clip=clip)
