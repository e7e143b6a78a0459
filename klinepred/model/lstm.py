"""In: settings of a network. Out: the network: LSTM layers and two fully connected layers over every step."""

# Shapes: B sequences, T steps, F features, H hidden units.

from __future__ import annotations

import torch
from torch import nn

from klinepred.settings import ModelSettings


class Network(nn.Module):
    """LSTM, then Linear - GELU - dropout - Linear, at every step; one output: the expected target in volatility units.

    The parameters stay float32; mixed precision is autocast's business.
    """

    def __init__(self, settings: ModelSettings, *, inputs: int) -> None:
        super().__init__()
        between = settings.dropout if settings.layers > 1 else 0.0
        self.lstm = nn.LSTM(inputs, settings.hidden, settings.layers, batch_first=True, dropout=between)
        self.head = nn.Sequential(
            nn.Linear(settings.hidden, settings.head),
            nn.GELU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.head, 1),
        )

    def forward(self, x_BTF: torch.Tensor) -> torch.Tensor:
        """Features [B, T, F] from a zero state to predictions [B, T], Float32."""
        hidden_BTH, _ = self.lstm(x_BTF)
        y_BT1: torch.Tensor = self.head(hidden_BTH)
        return y_BT1.squeeze(-1).float()


def build_network(settings: ModelSettings, *, inputs: int) -> Network:
    """A fresh network, initialised from torch's current random state."""
    return Network(settings, inputs=inputs)


def parameter_count(network: nn.Module) -> int:
    """Number of trainable numbers."""
    return sum(p.numel() for p in network.parameters() if p.requires_grad)
