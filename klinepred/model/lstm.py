"""In: settings of a network. Out: the network: LSTM layers and two fully connected layers over every step."""

# Shapes: B sequences, T steps, F features, H hidden units, O outputs (expected value, then Q quantiles).

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from klinepred.errors import ModelError
from klinepred.model.dropout import Dropout, DropoutLSTM
from klinepred.settings import ModelSettings

State = tuple[torch.Tensor, torch.Tensor]
"""Hidden and cell state of all layers, each [layers, B, H]."""


class Network(nn.Module):
    """LSTM, then Linear - GELU - dropout - Linear, at every step.

    Output 0 is the expected target in volatility units; the others, if any, its quantiles at the levels
    `settings.quantiles`. The parameters stay float32; mixed precision is autocast's business.

    * `layer_norm`: the last LSTM layer's output is normalised over its H numbers, step by step, in float32 (Ba, Kiros
      and Hinton, Layer Normalization, 2016). Between the LSTM layers there is none: they run as one cuDNN kernel.
    * `skip`: a linear map without bias from the features of a step to its outputs is added; its weights begin at zero,
      so that the network begins as it would without.
    * `flatten`: the fully connected layers read all T = `flatten` steps at once and answer for the last one alone.

    Attributes
    ----------
    quantiles
        Levels of outputs 1, 2, …; empty without any.
    """

    def __init__(self, settings: ModelSettings, *, inputs: int) -> None:
        super().__init__()
        between = settings.dropout if settings.layers > 1 else 0.0
        self.quantiles = settings.quantiles
        self.flatten = settings.flatten
        outputs = 1 + len(settings.quantiles)
        self.lstm = DropoutLSTM(inputs, settings.hidden, settings.layers, batch_first=True, dropout=between)
        self.norm = nn.LayerNorm(settings.hidden) if settings.layer_norm else None
        self.head = nn.Sequential(
            nn.Linear(settings.hidden * max(1, settings.flatten), settings.head),
            nn.GELU(),
            Dropout(settings.dropout),
            nn.Linear(settings.head, outputs),
        )
        self.skip = nn.Linear(inputs, outputs, bias=False) if settings.skip else None
        if self.skip is not None:
            nn.init.zeros_(self.skip.weight)

    def forward(self, x_BTF: torch.Tensor) -> torch.Tensor:
        """Features [B, T, F] from a zero state to outputs [B, T, O], Float32.

        With `flatten` only the last step has an output; those before are NaN.

        Raises
        ------
        ModelError
            With `flatten`: the sequences have another length.
        """
        return self.carry(x_BTF)[0]

    def carry(self, x_BTF: torch.Tensor, state: State | None = None) -> tuple[torch.Tensor, State]:
        """`forward` from a state, None = zero, and the state after the last step. Errors as `forward`."""
        steps = x_BTF.shape[1]
        if self.flatten and steps != self.flatten:
            raise ModelError(
                "sequences for this network",
                expected=f"windows of {self.flatten} bars",
                got=f"{steps} bars",
                do=f'cut the dataset with cut = "window" and window = {self.flatten}',
            )
        hidden_BTH, after = self.lstm(x_BTF, state)
        if self.norm is not None:
            hidden_BTH = self.norm(hidden_BTH.float())
        if self.flatten:
            out_BTO = self.head(hidden_BTH.flatten(1))[:, None].float()
            x_BTF = x_BTF[:, -1:]
        else:
            out_BTO = self.head(hidden_BTH).float()
        if self.skip is not None:
            out_BTO = out_BTO + self.skip(x_BTF).float()
        if self.quantiles:
            out_BTO = rising_quantiles(out_BTO)
        if self.flatten:
            out_BTO = functional.pad(out_BTO, (0, 0, steps - 1, 0), value=float("nan"))
        return out_BTO, after


def rising_quantiles(raw_BTO: torch.Tensor) -> torch.Tensor:
    """Outputs whose quantiles never cross: the middle one as it is, the others at positive distances from it.

    The distance between neighbours is softplus of a number of the network's (positive increments, as in Liu and Wu,
    Stepwise multiple quantile regression estimation using non-crossing constraints, 2009). Output 0 passes unchanged.
    """
    above_BTQ = functional.pad(functional.softplus(raw_BTO[..., 2:]).cumsum(-1), (1, 0))
    middle = above_BTQ.shape[-1] // 2
    quantiles_BTQ = raw_BTO[..., 1:2] + above_BTQ - above_BTQ[..., middle : middle + 1]
    return torch.cat([raw_BTO[..., :1], quantiles_BTQ], dim=-1)


def build_network(settings: ModelSettings, *, inputs: int) -> Network:
    """A fresh network, initialised from torch's current random state."""
    return Network(settings, inputs=inputs)


def parameter_count(network: nn.Module) -> int:
    """Number of trainable numbers."""
    return sum(p.numel() for p in network.parameters() if p.requires_grad)
