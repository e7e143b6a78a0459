"""In: outputs of a network and labels. Out: the loss of each row, the same in training and validation."""

# Shapes: L labelled rows, O outputs (expected value, then Q quantiles).

from __future__ import annotations

import torch
from torch.nn import functional


def row_loss(out_LO: torch.Tensor, y_L: torch.Tensor, *, kind: str, quantiles: tuple[float, ...] = ()) -> torch.Tensor:
    """Loss [L] in the precision of `out_LO`, in units of volatility or their square.

    Parameters
    ----------
    kind
        mse: (y - m)^2 of the expected value m, output 0. huber: half that up to a miss of 1, |y - m| - 1/2 beyond
        (Huber, Robust Estimation of a Location Parameter, 1964). quantile: (y - m)^2 plus `pinball` of the quantiles,
        the other outputs; the expected value learns as under mse.
    quantiles
        Levels of outputs 1, 2, …
    """
    mean_L = out_LO[:, 0]
    if kind == "huber":
        return functional.huber_loss(mean_L, y_L, reduction="none")
    loss_L = functional.mse_loss(mean_L, y_L, reduction="none")
    return loss_L + pinball(out_LO[:, 1:], y_L, quantiles) if kind == "quantile" else loss_L


def pinball(z_LQ: torch.Tensor, y_L: torch.Tensor, quantiles: tuple[float, ...]) -> torch.Tensor:
    """Mean over the levels q of max(q (y - z), (q - 1) (y - z)), [L]; least where a share q of labels lies below z.

    Koenker and Bassett, Regression Quantiles, 1978.
    """
    q_Q = torch.tensor(quantiles, dtype=z_LQ.dtype, device=z_LQ.device)
    miss_LQ = y_L[:, None] - z_LQ
    return torch.maximum(q_Q * miss_LQ, (q_Q - 1.0) * miss_LQ).mean(-1)
