"""In: a network, a batch, the mixed-precision path. Out: one optimiser step, in the only order that is right."""

# Shapes: B sequences, T steps, F features, O outputs.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from klinepred.settings import TrainSettings
from klinepred.training.loss import row_loss
from klinepred.training.precision import Precision
from klinepred.training.ranks import Ranks


@dataclass(frozen=True)
class StepResult:
    """What one step did.

    Attributes
    ----------
    loss
        Mean over the labelled rows of the batch, float32; not finite when the forward pass overflowed.
    norm
        Norm of all gradients, unscaled, before clipping.
    clipped
        Whether clipping changed a gradient.
    skipped
        Whether a gradient was not finite: the weights were left alone, with or without a scaler.
    scale
        Loss scale the step was taken with; 1 without scaler.
    """

    loss: float
    norm: float
    clipped: bool
    skipped: bool
    scale: float


@dataclass(frozen=True)
class Spread:
    """A batch that several processes have divided among themselves.

    Attributes
    ----------
    network
        What to call: it makes gradients the mean over all processes (`Ranks.spread`).
    labels
        Labelled rows of the whole batch.
    """

    network: nn.Module
    labels: int
    ranks: Ranks


def masked_loss(
    out_BTO: torch.Tensor,
    y_BT: torch.Tensor,
    labelled_BT: torch.Tensor,
    *,
    kind: str,
    quantiles: tuple[float, ...] = (),
    spread: Spread | None = None,
) -> torch.Tensor:
    """Mean of `row_loss` over the labelled rows, in float32.

    With `spread`, such that the mean of it over all processes is that over the labelled rows of all of them: masks
    differ from process to process, so that a mean of means would weigh rows unequally.
    """
    out_LO, y_L = out_BTO[labelled_BT].float(), y_BT[labelled_BT]
    loss_L = row_loss(out_LO, y_L, kind=kind, quantiles=quantiles)
    return loss_L.mean() if spread is None else loss_L.sum() * (spread.ranks.world / spread.labels)


def take_step(
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    *,
    precision: Precision,
    train: TrainSettings,
    quantiles: tuple[float, ...] = (),
    watch: Callable[[nn.Module], None] | None = None,
    spread: Spread | None = None,
) -> StepResult:
    """Forward under autocast, loss in float32, scale, backward, unscale, clip, step, update.

    Parameters
    ----------
    batch
        Features [B, T, F], labels [B, T] (float32, clipped), mask of labelled rows [B, T].
    quantiles
        Levels of the network's outputs beside the expected value.
    watch
        Called with the network between `unscale_` and clipping, when the true gradients are there.
    spread
        Of a batch divided among several processes; None: there is one.
    """
    x_BTF, y_BT, labelled_BT = batch
    with precision.autocast():
        out_BTO = (spread.network if spread else network)(x_BTF)
    loss = masked_loss(out_BTO, y_BT, labelled_BT, kind=train.loss, quantiles=quantiles, spread=spread)
    optimiser.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    scaler.unscale_(optimiser)
    if watch is not None:
        watch(network)
    norm, clipped = clip_gradients(network, train)
    value = spread.ranks.sums(loss.item() / spread.ranks.world)[0] if spread else loss.item()
    scale = scaler.get_scale()
    if not scaler.is_enabled() and not norm < float("inf"):
        return StepResult(value, norm, clipped=False, skipped=True, scale=scale)
    scaler.step(optimiser)
    scaler.update()
    skipped = scaler.get_scale() < scale
    return StepResult(value, norm, clipped and not skipped, skipped=skipped, scale=scale)


def clip_gradients(network: nn.Module, train: TrainSettings) -> tuple[float, bool]:
    """Clip by norm or by value, as configured; the norm before, and whether anything was clipped."""
    weights = list(network.parameters())
    if train.clip == "norm":
        norm = float(nn.utils.clip_grad_norm_(weights, train.clip_norm))
        return norm, norm > train.clip_norm
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norm = float(nn.utils.get_total_norm(gradients))
    largest = float(nn.utils.get_total_norm(gradients, norm_type=float("inf")))
    nn.utils.clip_grad_value_(weights, train.clip_value)
    return norm, largest > train.clip_value
