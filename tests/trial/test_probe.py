"""In: a line y = w x, whose gradients are known. Out: what every precision makes of them, on the product's own step."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
import torch
from torch import nn

from klinepred.model.lstm import Network, build_network
from klinepred.settings import ModelSettings, TrainSettings
from klinepred.training.precision import Precision
from klinepred.trial.probe import Batch, compare, gradients, probe
from klinepred.trial.race import precisions

TRAIN = TrainSettings(clip_norm=1e-9)  # probes must not be clipped
KINDS = precisions(TRAIN, torch.device("cpu"))


class Line(nn.Module):
    """w starts at 0; with the label -slope / 2 the gradient is slope * (1, 2)."""

    quantiles: tuple[float, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(2, 1, bias=False)
        nn.init.zeros_(self.line.weight)

    def forward(self, x_BTF: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.line(x_BTF)
        return out.float()


def batch(slope: float) -> Batch:
    return torch.tensor([[[1.0, 2.0]]]), torch.full((1, 1), -slope / 2), torch.ones(1, 1, dtype=torch.bool)


def seen(slope: float, precision: Precision) -> tuple[list[float] | None, float]:
    line = Line()
    found, scale = gradients(cast("Network", line), batch(slope), precision=precision, train=TRAIN)
    assert line.line.weight.tolist() == [[0.0, 0.0]]  # a probe moves nothing
    return None if found is None else found[0].flatten().tolist(), scale


def test_gradients_are_those_of_the_loss_neither_scaled_nor_clipped() -> None:
    assert seen(3.0, KINDS["fp32"]) == ([3.0, 6.0], 1.0)
    assert seen(3.0, KINDS["fp16"]) == ([3.0, 6.0], 8192.0)  # 6 x 2^13 is below 65504, 6 x 2^14 is not
    assert seen(3.0, KINDS["bf16"]) == ([3.0, 6.0], 1.0)


def test_a_small_gradient_survives_in_fp16_by_its_scale_alone() -> None:
    scaled, scale = seen(1e-8, KINDS["fp16"])
    assert scaled == pytest.approx([1e-8, 2e-8], rel=1e-3)
    assert scale == 65536.0
    bare, _ = seen(1e-8, replace(KINDS["fp16"], scaled=False))
    assert bare == [0.0, 0.0]


def test_gradients_that_are_not_finite_are_said_to_be_none() -> None:
    found, _ = seen(1e38, KINDS["fp32"])
    assert found is None
    found, _ = seen(1e30, KINDS["fp16"])
    assert found is None


def test_the_same_precision_twice_has_a_cosine_of_exactly_one() -> None:
    torch.manual_seed(3)
    network = build_network(ModelSettings(hidden=8, layers=2, head=4, dropout=0.0), inputs=5)
    some = torch.randn(4, 6, 5), torch.randn(4, 6), torch.ones(4, 6, dtype=torch.bool)
    exact, _ = gradients(network, some, precision=KINDS["fp32"], train=TRAIN)
    assert exact is not None
    likes = probe(network, some, exact=exact, precisions={"again": KINDS["fp32"]} | KINDS, train=TRAIN)
    assert (likes["again"].cosine, likes["again"].error, likes["again"].flushed) == (1.0, 0.0, 0.0)
    # half of a unit in the last place, 2^-9 and 2^-12, in every product
    assert 0.9999 < likes["bf16"].cosine < 1.0
    assert 1.0 - likes["fp16"].cosine < (1.0 - likes["bf16"].cosine) / 10
    assert 1e-4 < likes["bf16"].error < 2e-2


@pytest.mark.parametrize(
    ("found", "cosine", "error"),
    [((2.0, 0.0), 1.0, 1.0), ((0.0, 5.0), 0.0, 26**0.5), ((-1.0, 0.0), -1.0, 2.0), ((0.5, 0.75**0.5), 0.5, 1.0)],
)
def test_cosine_and_error_by_hand(found: tuple[float, float], cosine: float, error: float) -> None:
    exact = [torch.tensor([1.0]), torch.tensor([0.0])]
    like = compare([torch.tensor([found[0]]), torch.tensor([found[1]])], exact=exact, scale=1.0)
    assert like.cosine == pytest.approx(cosine, abs=1e-7)
    assert like.error == pytest.approx(error, rel=1e-6)
