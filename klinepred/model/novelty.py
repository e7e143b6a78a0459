"""In: scaled features of train and validation rows. Out: `Novelty`: how far a row lies from them, when too far."""

# Shapes: N rows, F features.

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

LEVEL: Final = 0.999
"""Share of validation rows that are not too far."""
LEAST: Final = 1_000
"""Fewest validation rows that a threshold is set on: with fewer the largest distance seen says little."""
BLOCK: Final = 65_536
"""Rows measured at a time."""
MOST: Final = 50_000
"""Train rows that are looked at, and a quarter of the validation rows that are; evenly spread."""


@dataclass(frozen=True)
class Novelty:
    """Squared Mahalanobis distance over the number of features, from the train rows.

    A row of the train part has 1 in the mean. The covariance is shrunk towards a multiple of the identity (Ledoit and
    Wolf, A well-conditioned estimator for large-dimensional covariance matrices, 2004), so that features which say
    the same, or which never moved in training, can be measured too.

    Attributes
    ----------
    centre_F, precision_FF
        Mean and inverse covariance of the scaled features over the train rows, Float64.
    threshold
        The score that at most one validation row in a thousand exceeds, as the quantile of split conformal prediction
        with its finite-sample correction (Vovk, Gammerman and Shafer, 2005).
    rows
        Validation rows it was set on.
    """

    centre_F: np.ndarray
    precision_FF: np.ndarray
    threshold: float
    rows: int

    def score(self, x_NF: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Score [N] of each row, and the number [N] of the feature that contributes most to it."""
        away_NF = x_NF.astype(np.float64) - self.centre_F
        part_NF = away_NF * (away_NF @ self.precision_FF)
        return part_NF.mean(axis=1), part_NF.argmax(axis=1) if part_NF.size else np.zeros(0, dtype=np.int64)

    def too_far(self, x_NF: np.ndarray) -> int:
        """How many rows lie beyond the threshold."""
        return sum(
            int((self.score(x_NF[at : at + BLOCK])[0] > self.threshold).sum()) for at in range(0, len(x_NF), BLOCK)
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "centre": self.centre_F.tolist(),
            "precision": self.precision_FF.tolist(),
            "threshold": self.threshold,
            "rows": self.rows,
        }

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Novelty:
        """The inverse of `to_dict`; ValueError where the sizes do not fit each other."""
        centre_F = np.asarray(table["centre"], dtype=np.float64)
        precision_FF = np.asarray(table["precision"], dtype=np.float64)
        if precision_FF.shape != (centre_F.size, centre_F.size):
            raise ValueError(f"a covariance of {precision_FF.shape} for {centre_F.size} features")
        return cls(centre_F, precision_FF, float(table["threshold"]), int(table["rows"]))


def fit_novelty(x_NF: np.ndarray, *, train_N: np.ndarray, validation_N: np.ndarray) -> Novelty | None:
    """Learn where the train rows lie, and set the threshold on validation rows; None with too few of either.

    Parameters
    ----------
    x_NF
        Scaled features.
    train_N, validation_N
        Masks [N].
    """
    train, held = _spread(train_N, MOST), _spread(validation_N, 4 * MOST)
    if train.size < LEAST or held.size < LEAST:
        return None
    from sklearn.covariance import LedoitWolf

    fitted = LedoitWolf(store_precision=True).fit(x_NF[train].astype(np.float64))
    whole = Novelty(fitted.location_, fitted.precision_, np.inf, int(held.size))
    scores = np.sort(whole.score(x_NF[held])[0])
    rank = min(held.size, int(np.ceil(LEVEL * (held.size + 1))))
    return Novelty(whole.centre_F, whole.precision_FF, float(scores[rank - 1]), whole.rows)


def _spread(mask_N: np.ndarray, most: int) -> np.ndarray:
    """Numbers of the rows of a mask, at most so many of them."""
    rows = np.flatnonzero(mask_N)
    return rows if rows.size <= most else rows[np.linspace(0, rows.size - 1, most).round().astype(np.int64)]
