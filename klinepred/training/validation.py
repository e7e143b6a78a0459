"""In: a network, a dataset. Out: `Validation`: its scores over every labelled row of the validation part."""

# Shapes: N rows, V labelled validation rows.

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from klinepred import metrics
from klinepred.dataset.make import Dataset
from klinepred.errors import TrainingError
from klinepred.model.forward import forward_rows


@dataclass(frozen=True)
class Validation:
    """Scores in units of volatility, summed in float64 over float32 predictions with dropout off.

    Attributes
    ----------
    loss
        The training loss: labels clipped like those of training. NaN when a prediction is not finite.
    loss_unclipped
        The same with the labels as they are.
    skill
        1 - loss / loss of predicting 0.
    ic, rank_ic
        Pearson and Spearman correlation with the unclipped labels; NaN for constant predictions.
    rows
        How many rows were graded.
    """

    loss: float
    loss_unclipped: float
    skill: float
    ic: float
    rank_ic: float
    rows: int


def validate(network: nn.Module, data: Dataset, *, kind: str, device: torch.device) -> Validation:
    """Grade `network` in float32, on the very path that prediction takes.

    Parameters
    ----------
    kind
        mse or huber.

    Raises
    ------
    TrainingError
        No row of the validation part has a label.
    """
    mask_N = data.mask("validation")
    if not mask_N.any():
        raise TrainingError(
            "validation part", expected="rows with a label", got="none", do="ingest more history, or move the split"
        )
    pred_V = forward_rows(network, data.x_NF, data.part("validation"), device=device)[mask_N]
    y_V = data.y_N[mask_N]
    clip = data.settings.label_clip
    clipped_V = np.clip(y_V, -clip, clip)
    loss = _loss(pred_V, clipped_V, kind)
    finite = bool(np.isfinite(pred_V).all())
    return Validation(
        loss=loss,
        loss_unclipped=_loss(pred_V, y_V, kind),
        skill=1.0 - loss / max(_loss(np.zeros_like(clipped_V), clipped_V, kind), 1e-300),
        ic=metrics.ic(pred_V, y_V) if finite else float("nan"),
        rank_ic=metrics.rank_ic(pred_V, y_V) if finite else float("nan"),
        rows=int(y_V.size),
    )


def _loss(pred_V: np.ndarray, y_V: np.ndarray, kind: str) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        miss_V = np.abs(pred_V.astype(np.float64) - y_V)
        loss_V = np.where(miss_V <= 1.0, 0.5 * miss_V**2, miss_V - 0.5) if kind == "huber" else miss_V**2
        return float(loss_V.mean())
