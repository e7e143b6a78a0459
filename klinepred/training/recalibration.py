"""In: the best network, a dataset. Out: the same network, its expected value scaled by its slope on validation."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

from klinepred.dataset.make import Dataset
from klinepred.model.calibration import shrunk_slope
from klinepred.model.ensemble import AnyNetwork, members_of
from klinepred.model.forward import forward_rows

LEAST: Final = 0.05
"""Lowest factor: a network without skill on validation expects next to nothing, and still ranks."""
MOST: Final = 2.0


@torch.no_grad()
def recalibrate(network: AnyNetwork, data: Dataset, *, device: torch.device) -> float:
    """Scale the last layer's output 0 in place by the slope of the labels on it; its IC and ranks stay as they were.

    A network that has begun to overfit expects too much: its errors correlate with its forecasts. The least squares
    line through the origin over the validation part (Mincer and Zarnowitz, The evaluation of economic forecasts, 1969),
    shrunk by its own uncertainty, says by how much. Labels are clipped as in training; quantiles are left alone.

    Returns
    -------
    float
        The factor, from 0.05 to 2; 1 (and nothing done) where the part has no labelled row or predictions that are not
        finite.
    """
    mask_N = data.mask("validation")
    pred_N = forward_rows(network.to(device), data.x_NF, data.part("validation"), device=device)
    network.to("cpu")
    pred_V, label_V = pred_N[mask_N], data.y_N[mask_N]
    if not mask_N.any() or not np.isfinite(pred_V).all():
        return 1.0
    clip = data.settings.label_clip
    time_V = data.rows.get_column("ts").to_physical().to_numpy()[mask_N]
    label_V = np.clip(label_V, -clip, clip).astype(np.float64)
    factor = min(max(shrunk_slope(pred_V.astype(np.float64), label_V, time_V), LEAST), MOST)
    for member in members_of(network):
        last = member.head[-1]
        assert isinstance(last, torch.nn.Linear)  # noqa: S101
        last.weight[0] *= factor
        last.bias[0] *= factor
        if member.skip is not None:
            member.skip.weight[0] *= factor
    return factor
