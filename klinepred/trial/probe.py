"""In: weights, a batch, precisions. Out: the gradient of each at the same weights, and how far it is from fp32's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn

from klinepred.model.lstm import Network
from klinepred.settings import TrainSettings
from klinepred.training.precision import Precision
from klinepred.training.step import take_step
from klinepred.trial.half import flushed_share

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

HALVINGS: Final = 25
"""So often a loss scale may be halved until the gradients are finite; more, and it is not the scale."""


@dataclass(frozen=True)
class Likeness:
    """A gradient beside that of fp32, at the same weights and on the same batch.

    Attributes
    ----------
    cosine
        Of the angle between both, over all weights; 1 = the same direction, NaN = not finite.
    error
        Length of the difference over the length of fp32's.
    flushed
        Share of the entries that are exactly 0 though fp32's are not.
    scale
        Loss scale at which the gradient was finite; 1 without a scaler.
    """

    cosine: float
    error: float
    flushed: float
    scale: float


def gradients(
    network: Network, batch: Batch, *, precision: Precision, train: TrainSettings
) -> tuple[list[torch.Tensor] | None, float]:
    """Gradients of all weights, unscaled and not clipped, by the very step that training takes; the loss scale.

    The weights stay as they are. None where the gradients are not finite, whatever the loss scale.
    """
    optimiser = torch.optim.SGD(network.parameters(), lr=0.0)
    scaler = precision.scaler(train)
    seen: list[torch.Tensor] = []

    def watch(_network: nn.Module) -> None:
        seen[:] = [w.grad.clone() if w.grad is not None else torch.zeros_like(w) for w in network.parameters()]

    with precision.applied():
        for _ in range(HALVINGS):
            result = take_step(
                network,
                optimiser,
                scaler,
                batch,
                precision=precision,
                train=train,
                quantiles=network.quantiles,
                watch=watch,
            )
            if not result.skipped:
                return seen, result.scale
            if not scaler.is_enabled():
                break
    return None, float("nan")


def compare(found: list[torch.Tensor] | None, *, exact: list[torch.Tensor], scale: float) -> Likeness:
    """How like `exact` the gradient `found` is; sums in float64."""
    if found is None:
        return Likeness(float("nan"), float("nan"), float("nan"), scale)
    dot = squares = exact_squares = miss = 0.0
    same = True
    for g, e in zip(found, exact, strict=True):
        first, second = g.double(), e.double()
        dot += float((first * second).sum())
        squares += float(first.square().sum())
        exact_squares += float(second.square().sum())
        miss += float((first - second).square().sum())
        same = same and torch.equal(g, e)
    length = (squares * exact_squares) ** 0.5
    return Likeness(
        cosine=1.0 if same else dot / length if length else 0.0,
        error=(miss / exact_squares) ** 0.5 if exact_squares else float("nan"),
        flushed=flushed_share(found, exact=exact),
        scale=scale,
    )


def probe(
    network: Network,
    batch: Batch,
    *,
    exact: list[torch.Tensor],
    precisions: Mapping[str, Precision],
    train: TrainSettings,
) -> dict[str, Likeness]:
    """Every precision's gradient beside `exact`, which is fp32's from `gradients` on the same batch."""
    out = {}
    for name, precision in precisions.items():
        found, scale = gradients(network, batch, precision=precision, train=train)
        out[name] = compare(found, exact=exact, scale=scale)
    return out
