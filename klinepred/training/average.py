"""In: a network that learns. Out: `WeightAverage`: its exponential moving average, for validation and the bundle."""

from __future__ import annotations

import copy

import torch
from torch import nn


class WeightAverage:
    """Exponential moving average of the weights; with decay 0 it is the network itself.

    The decay rises with the steps, min(decay, (1 + step) / (10 + step)), so that the random start is forgotten early
    (as in TensorFlow's ExponentialMovingAverage with `num_updates`).
    """

    def __init__(self, network: nn.Module, *, decay: float) -> None:
        self.decay = decay
        self.network = network
        if decay:
            self.network = copy.deepcopy(network).requires_grad_(requires_grad=False)
            for module in self.network.modules():
                if isinstance(module, nn.RNNBase):
                    module.flatten_parameters()  # a copy leaves cuDNN's weights scattered

    @torch.no_grad()
    def update(self, network: nn.Module, *, step: int) -> None:
        """Take in the weights after successful step number `step` (from 1)."""
        if self.network is network:
            return
        decay = min(self.decay, (1.0 + step) / (10.0 + step))
        torch._foreach_lerp_(list(self.network.parameters()), list(network.parameters()), 1.0 - decay)
        for kept, fresh in zip(self.network.buffers(), network.buffers(), strict=True):
            kept.copy_(fresh)
