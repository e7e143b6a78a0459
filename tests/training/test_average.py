"""In: weights over some steps. Out: their moving average, against a slow loop."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from klinepred.training.average import WeightAverage


def test_the_average_follows_its_formula() -> None:
    network = nn.Linear(1, 1)
    average = WeightAverage(network, decay=0.9)
    want = network.weight.item()
    for step in range(1, 200):
        with torch.no_grad():
            network.weight.fill_(step**0.5)
        average.update(network, step=step)
        decay = min(0.9, (1 + step) / (10 + step))
        want = decay * want + (1 - decay) * step**0.5
        assert next(average.network.parameters()).item() == pytest.approx(want, rel=1e-5)


def test_decay_zero_is_the_network_itself() -> None:
    network = nn.Linear(2, 1)
    average = WeightAverage(network, decay=0.0)
    assert average.network is network
    average.update(network, step=1)


def test_the_average_is_never_trained() -> None:
    average = WeightAverage(nn.LSTM(2, 3), decay=0.5)
    assert not any(weight.requires_grad for weight in average.network.parameters())
