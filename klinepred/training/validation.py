"""In: a network, a dataset. Out: `Validation`: its scores over every labelled row of the validation part."""

# Shapes: N rows, V labelled validation rows, O outputs of the network.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from torch import nn

from klinepred import metrics
from klinepred.dataset.make import Dataset
from klinepred.dataset.target import KINDS
from klinepred.errors import TrainingError
from klinepred.model.forward import forward_outputs
from klinepred.training.loss import row_loss
from klinepred.training.ranks import ALONE, Ranks

CLIP: Final = 6.0
"""`*_clip6` scores have the label, never the prediction, clipped at so many units, whatever `dataset.label_clip` is."""


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
        1 - loss / loss of predicting 0, both of the expected value alone.
    ic, rank_ic
        Pearson and Spearman correlation with the unclipped labels; NaN for constant predictions.
    rows
        How many rows were graded.
    scores
        rows, mse, ic, rank_ic of all rows (`val_mse` …), of steps within a stretch of trading (`val_within_mse` …) and
        of steps across a break (`val_break_mse` …), mse and ic also against clipped labels (`…_clip6`).
    below
        For each quantile of the network, the share of unclipped labels at or below it: its level, if it is right.
    """

    loss: float
    loss_unclipped: float
    skill: float
    ic: float
    rank_ic: float
    rows: int
    below: tuple[float, ...] = ()
    scores: dict[str, float] = field(default_factory=dict)


def validate(
    network: nn.Module,
    data: Dataset,
    *,
    kind: str,
    device: torch.device,
    quantiles: tuple[float, ...] = (),
    ranks: Ranks = ALONE,
) -> Validation:
    """Grade `network` in float32, on the very path that prediction takes; several processes divide the sequences.

    Parameters
    ----------
    kind
        mse, huber or quantile: `train.loss`.
    quantiles
        Levels of the network's outputs beside the expected value.

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
    own = data.part("validation").every(ranks.world, first=ranks.rank)
    out_VO = ranks.merged(forward_outputs(network, data.x_NF, own, device=device)[mask_N])
    pred_V = out_VO[:, 0]
    y_V = data.y_N[mask_N]
    clip = data.settings.label_clip
    clipped_V = np.clip(y_V, -clip, clip)
    finite = bool(np.isfinite(out_VO).all())
    plain = "huber" if kind == "huber" else "mse"
    return Validation(
        loss=_loss(out_VO, clipped_V, kind, quantiles),
        loss_unclipped=_loss(out_VO, y_V, kind, quantiles),
        skill=1.0 - _loss(out_VO, clipped_V, plain) / max(_loss(np.zeros_like(out_VO), clipped_V, plain), 1e-300),
        ic=metrics.ic(pred_V, y_V) if finite else float("nan"),
        rank_ic=metrics.rank_ic(pred_V, y_V) if finite else float("nan"),
        rows=int(y_V.size),
        scores=_scores(pred_V, y_V, data.kind_N[mask_N], finite=finite),
        below=tuple(float((y_V <= out_VO[:, 1 + index]).mean()) for index in range(len(quantiles))),
    )


def zero_loss(data: Dataset, *, kind: str, quantiles: tuple[float, ...] = ()) -> float:
    """Validation loss of the constant 0, for the expected value and every quantile; parameters as `validate`."""
    y_V = data.y_N[data.mask("validation")]
    clipped_V = np.clip(y_V, -data.settings.label_clip, data.settings.label_clip)
    return _loss(np.zeros((y_V.size, 1 + len(quantiles)), dtype=np.float32), clipped_V, kind, quantiles)


def _scores(pred_V: np.ndarray, y_V: np.ndarray, kind_V: np.ndarray, *, finite: bool) -> dict[str, float]:
    """By name; nothing for a kind of step without rows, and nothing at all for predictions that are not finite."""
    found: dict[str, float] = {}
    masks = {"val": np.ones(y_V.size, dtype=bool), **{f"val_{name}": kind_V == code for code, name in enumerate(KINDS)}}
    for name, here_V in masks.items():
        if not finite or not here_V.any():
            continue
        pred, y = pred_V[here_V].astype(np.float64), y_V[here_V].astype(np.float64)
        clipped = np.clip(y, -CLIP, CLIP)
        found |= {
            f"{name}_rows": float(y.size),
            f"{name}_mse": metrics.mse(pred, y),
            f"{name}_mse_clip6": metrics.mse(pred, clipped),
            f"{name}_ic": metrics.ic(pred, y),
            f"{name}_ic_clip6": metrics.ic(pred, clipped),
            f"{name}_rank_ic": metrics.rank_ic(pred, y),
        }
    return found


def _loss(out_VO: np.ndarray, y_V: np.ndarray, kind: str, quantiles: tuple[float, ...] = ()) -> float:
    out, y = torch.from_numpy(out_VO).double(), torch.from_numpy(y_V).double()
    return float(row_loss(out, y, kind=kind, quantiles=quantiles).mean())
