"""In: a network, a dataset. Out: its predictions on some of the validation rows, in basis points, beside another's."""

# Shapes: S sequences, V labelled validation rows.

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch

from klinepred.dataset.make import Dataset
from klinepred.dataset.sequences import Sequences
from klinepred.model.forward import forward_rows
from klinepred.model.lstm import Network
from klinepred.settings import TrainSettings
from klinepred.training.validation import validate

VALIDATION_STEPS: Final = 40_000
"""LSTM steps of the validation rows that predictions are compared on, at most."""


@dataclass(frozen=True)
class Graded:
    """Predictions of a network on the validation rows, in basis points, and its loss there."""

    bps_V: np.ndarray
    loss: float


def few_sequences(data: Dataset) -> Dataset:
    """The dataset with an even sample of its validation sequences, and no others."""
    part = data.part("validation")
    count = max(1, VALIDATION_STEPS // max(1, int(part.length_S.max(initial=1))))
    pick_S = np.unique(np.linspace(0, max(0, len(part) - 1), min(count, max(1, len(part)))).astype(np.int64))
    pick_S = pick_S[: len(part)]
    return replace(data, sequences=Sequences(part.start_S[pick_S], part.length_S[pick_S], part.lead_S[pick_S]))


def grade(network: Network, data: Dataset, *, train: TrainSettings, device: torch.device) -> Graded:
    """Predictions in float32, as the product makes them, and the loss."""
    score = validate(network, data, kind=train.loss, device=device, quantiles=network.quantiles)
    mask_N = data.mask("validation")
    pred_V = forward_rows(network, data.x_NF, data.part("validation"), device=device)[mask_N]
    return Graded(1e4 * pred_V.astype(np.float64) * data.vol_N[mask_N], score.loss)


def differences(bps_V: np.ndarray, base_V: np.ndarray) -> tuple[float, float, float]:
    """Root mean square and 99th percentile of the difference in basis points; share of signs that differ."""
    if not (np.isfinite(bps_V).all() and np.isfinite(base_V).all()):
        return (float("nan"),) * 3
    diff_V = np.abs(bps_V - base_V)
    flips = float((np.sign(bps_V) != np.sign(base_V)).mean())
    return float(np.sqrt(np.square(diff_V).mean())), float(np.quantile(diff_V, 0.99)), flips
