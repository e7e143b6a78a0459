"""In: a network, scaled rows, sequences. Out: one prediction for every row that a sequence owns."""

# Shapes: N rows, F features, B sequences of a batch, T steps.

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from klinepred.dataset.sequences import Sequences, batches


@torch.no_grad()
def forward_rows(
    network: nn.Module,
    x_NF: np.ndarray,
    sequences: Sequences,
    *,
    device: str | torch.device = "cpu",
    steps: int = 65_536,
) -> np.ndarray:
    """Predict in float32 with dropout off; the network's mode is left as it was.

    Parameters
    ----------
    x_NF
        Scaled features, Float32.
    steps
        Most LSTM steps of a batch: bounds the memory, not the result.

    Returns
    -------
    numpy.ndarray
        [N] Float32, in units of volatility; NaN where no sequence owns the row.
    """
    out_N = np.full(x_NF.shape[0], np.nan, dtype=np.float32)
    if len(sequences) == 0:
        return out_N
    source_NF = torch.from_numpy(x_NF)
    size = max(1, steps // int(sequences.length_S.max()))
    training = network.training
    network.eval()
    try:
        for batch in batches(sequences, size=size):
            x_BTF = source_NF[torch.from_numpy(batch.rows_BT)].to(device)
            y_BT = network(x_BTF).float().cpu().numpy()
            out_N[batch.rows_BT[batch.own_BT]] = y_BT[batch.own_BT]
    finally:
        network.train(training)
    return out_N
