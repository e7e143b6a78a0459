"""In: a network, scaled rows, sequences. Out: one prediction for every row that a sequence owns."""

# Shapes: N rows, F features, B sequences of a batch, T steps, O outputs of the network.

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from torch import nn

from klinepred.dataset.sequences import Sequences, batches

STEPS: Final = {"cpu": 8_192, "other": 65_536}
"""A CPU is a fifth faster where a step of all sequences of a batch stays in its caches; a GPU wants many at once."""


def forward_rows(
    network: nn.Module,
    x_NF: np.ndarray,
    sequences: Sequences,
    *,
    device: str | torch.device = "cpu",
    steps: int | None = None,
) -> np.ndarray:
    """The expected value, in float32 with dropout off; the network's mode is left as it was.

    Parameters
    ----------
    x_NF
        Scaled features, Float32.
    steps
        Most LSTM steps of a batch: bounds the memory, not the result. Default: `STEPS` of the kind of device.

    Returns
    -------
    numpy.ndarray
        [N] Float32, in units of volatility; NaN where no sequence owns the row.
    """
    pred_N = np.full(x_NF.shape[0], np.nan, dtype=np.float32)
    for rows_L, out_LO in _owned(network, x_NF, sequences, device=device, steps=steps):
        pred_N[rows_L] = out_LO[:, 0]
    return pred_N


def forward_outputs(
    network: nn.Module,
    x_NF: np.ndarray,
    sequences: Sequences,
    *,
    device: str | torch.device = "cpu",
    steps: int | None = None,
) -> np.ndarray:
    """All outputs [N, O]: the expected value, then the quantiles of the target. The rest as `forward_rows`."""
    out_NO = np.full((x_NF.shape[0], 1), np.nan, dtype=np.float32)
    for rows_L, out_LO in _owned(network, x_NF, sequences, device=device, steps=steps):
        if out_NO.shape[1] != out_LO.shape[1]:
            out_NO = np.full((x_NF.shape[0], out_LO.shape[1]), np.nan, dtype=np.float32)
        out_NO[rows_L] = out_LO
    return out_NO


@torch.no_grad()
def _owned(
    network: nn.Module, x_NF: np.ndarray, sequences: Sequences, *, device: str | torch.device, steps: int | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batch by batch, the numbers [L] of the rows its sequences own, and their outputs [L, O]."""
    if len(sequences) == 0:
        return
    source_NF = torch.from_numpy(x_NF)
    steps = steps or STEPS["cpu" if torch.device(device).type == "cpu" else "other"]
    size = max(1, steps // int(sequences.length_S.max()))
    training = network.training
    network.eval()
    try:
        for batch in batches(sequences, size=size):
            x_BTF = source_NF[torch.from_numpy(batch.rows_BT)].to(device)
            out_BTO = network(x_BTF).float().cpu().numpy()
            yield batch.rows_BT[batch.own_BT], out_BTO[batch.own_BT]
    finally:
        network.train(training)
