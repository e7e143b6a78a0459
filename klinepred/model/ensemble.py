"""In: trained networks of one shape. Out: `Ensemble`, which answers with their mean; weights to networks and back."""

# Shapes: B sequences, T steps, F features, O outputs (expected value, then Q quantiles).

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from klinepred.model.lstm import Network, build_network
from klinepred.settings import ModelSettings


class Ensemble(nn.Module):
    """Networks that differ in their seed alone; each output is the mean of theirs, taken in float32.

    The mean of expected values is the expected value of all; the mean of quantiles (Vincent averaging) stays in order.

    Attributes
    ----------
    quantiles
        Levels of outputs 1, 2, …, as in the members.
    """

    def __init__(self, members: Sequence[Network]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.quantiles = members[0].quantiles

    def forward(self, x_BTF: torch.Tensor) -> torch.Tensor:
        """Features [B, T, F] from a zero state to outputs [B, T, O], Float32; NaN where the members have none."""
        return torch.stack([member(x_BTF) for member in self.members]).mean(0)


AnyNetwork = Network | Ensemble


def members_of(network: AnyNetwork) -> list[Network]:
    """The networks that answer: one, or those of an ensemble in order."""
    if isinstance(network, Network):
        return [network]
    return [member for member in network.members if isinstance(member, Network)]


def unite(members: Sequence[Network]) -> AnyNetwork:
    """One network as it is, several as an ensemble; in eval mode."""
    return (members[0] if len(members) == 1 else Ensemble(members)).eval()


def network_from(
    weights: Mapping[str, torch.Tensor], settings: ModelSettings, *, inputs: int, members: int
) -> AnyNetwork:
    """The network whose `state_dict` is `weights`, in eval mode.

    Raises
    ------
    RuntimeError
        Weights that are not of such a network.
    """
    with torch.device("meta"):  # shapes alone: a table that claims a huge network gets no memory for it
        shell = unite([build_network(settings, inputs=inputs) for _ in range(members)])
    shell.load_state_dict(dict(weights), assign=True)
    with torch.random.fork_rng([]):
        network = unite([build_network(settings, inputs=inputs) for _ in range(members)])
    network.load_state_dict(dict(weights))
    return network
