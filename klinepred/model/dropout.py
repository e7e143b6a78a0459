"""In: activations of a training network. Out: `Dropout`, `DropoutLSTM`: torch's, with masks drawn faster on a CPU."""

# Shapes: B sequences, T steps, F features, H hidden units.

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import nn

PIECES: Final = 2**16
"""A mask is drawn in 16-bit pieces, so that a probability is rounded to a multiple of 1 / 65,536."""


def drop(x: torch.Tensor, probability: float) -> torch.Tensor:
    """`x` with each number set to 0 with a probability, the others divided by the share that stays.

    Inverted dropout (Srivastava and others, Dropout: a simple way to prevent neural networks from overfitting, 2014).
    torch draws a CPU's mask number by number from its one stream; here that stream only gives a seed, and an SFC64
    generator four pieces of the mask at a time. So the saved state of torch's stream still repeats every mask. The
    probability is that of the pieces, and so is the divisor: the mean stays.
    """
    threshold = round(probability * PIECES)
    if not threshold:
        return x
    if threshold == PIECES:
        return x * 0.0
    seed = int(torch.randint(2**63 - 1, (1,)))
    words = np.random.SFC64(seed).random_raw(-(-x.numel() // 4))
    pieces = torch.from_numpy(words.view(np.int16)[: x.numel()]).view(x.shape)
    return x * (pieces >= threshold - PIECES // 2) * (PIECES / (PIECES - threshold))


class Dropout(nn.Dropout):
    """torch's, but for a CPU's masks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` of any shape; itself in evaluation."""
        return drop(x, self.p) if self.training and x.device.type == "cpu" else super().forward(x)


class DropoutLSTM(nn.LSTM):
    """torch's LSTM (several layers, one direction, batch first), but for a CPU's masks between the layers.

    Without dropout and on other devices it is torch's own. Names and shapes of the parameters are the same.
    """

    def forward(  # type: ignore[override]
        self, x_BTF: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """Features [B, T, F] and a state (None = zero) to [B, T, H] and the state after, each [layers, B, H]."""
        if not (self.training and self.dropout and x_BTF.device.type == "cpu"):
            found: tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]] = super().forward(x_BTF, state)
            return found
        return layer_by_layer(self, x_BTF, state)


def layer_by_layer(
    lstm: nn.LSTM, x_BTF: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor] | None
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """What `nn.LSTM` computes in training, one call of torch's kernel a layer, with `drop` between them."""
    shape = (lstm.num_layers, x_BTF.shape[0], lstm.hidden_size)
    hidden, cell = (x_BTF.new_zeros(shape), x_BTF.new_zeros(shape)) if state is None else state
    out_BTH, after = x_BTF, []
    for layer, own in enumerate(lstm.all_weights):
        if layer:
            out_BTH = drop(out_BTH, lstm.dropout)
        begin = (hidden[layer : layer + 1], cell[layer : layer + 1])
        weights: list[torch.Tensor] = [*own]
        # bias, one layer, no dropout of its own, training, one direction, batch first
        out_BTH, *last = torch.lstm(out_BTH, begin, weights, True, 1, 0.0, True, False, True)
        after.append(last)
    return out_BTH, (torch.cat([one[0] for one in after]), torch.cat([one[1] for one in after]))
