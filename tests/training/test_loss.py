"""In: outputs and labels small enough to do by hand. Out: squared error, Huber, pinball, in training and validation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from klinepred.model.forward import forward_outputs
from klinepred.model.lstm import build_network
from klinepred.training.loss import pinball, row_loss
from klinepred.training.step import masked_loss
from klinepred.training.validation import validate
from tests.training.tiny import MODEL, TRAIN, Memory, tiny_dataset

LEVELS = (0.1, 0.5, 0.9)


def test_pinball_by_hand() -> None:
    z_LQ = torch.tensor([[-1.0, 0.0, 1.0], [2.0, 2.0, 2.0]])
    y_L = torch.tensor([0.5, 1.0])
    # row 0: 0.1 x 1.5, 0.5 x 0.5, 0.1 x 0.5; row 1, each label 1 below: 0.9, 0.5, 0.1
    want = [(0.15 + 0.25 + 0.05) / 3, (0.9 + 0.5 + 0.1) / 3]
    assert pinball(z_LQ, y_L, LEVELS).tolist() == pytest.approx(want)


def test_pinball_is_least_at_the_quantile() -> None:
    y_L = torch.from_numpy(np.random.default_rng(0).normal(size=20_000))
    grid = torch.linspace(-3.0, 3.0, 601, dtype=torch.float64)
    for level, want in zip(LEVELS, (-1.2816, 0.0, 1.2816), strict=True):
        losses = [float(pinball(z.expand(y_L.numel(), 1), y_L, (level,)).mean()) for z in grid]
        assert float(grid[int(np.argmin(losses))]) == pytest.approx(want, abs=0.04)


def test_the_quantile_loss_keeps_the_squared_error_of_the_expected_value() -> None:
    out_LO = torch.tensor([[2.0, -1.0, 0.0, 1.0]])
    y_L = torch.tensor([0.5])
    assert float(row_loss(out_LO, y_L, kind="quantile", quantiles=LEVELS)) == pytest.approx(2.25 + 0.15)
    assert float(row_loss(out_LO, y_L, kind="mse")) == pytest.approx(2.25)
    assert float(row_loss(out_LO, y_L, kind="huber")) == pytest.approx(1.0)
    labelled_BT = torch.tensor([[True, False]])
    both_BTO = torch.stack([out_LO, torch.full_like(out_LO, float("nan"))], dim=1)
    y_BT = torch.tensor([[0.5, 0.0]])
    assert float(masked_loss(both_BTO, y_BT, labelled_BT, kind="quantile", quantiles=LEVELS)) == pytest.approx(2.4)


def test_gradients_pass_by_steps_without_an_output() -> None:
    out_BTO = torch.zeros(1, 3, 1, requires_grad=True)
    padded_BTO = torch.cat([torch.full((1, 1, 1), float("nan")), out_BTO], dim=1)
    labelled_BT = torch.tensor([[False, True, True, True]])
    masked_loss(padded_BTO, torch.ones(1, 4), labelled_BT, kind="mse").backward()  # type: ignore[no-untyped-call]
    assert out_BTO.grad is not None
    assert out_BTO.grad.flatten().tolist() == pytest.approx([-2 / 3] * 3)


@pytest.mark.parametrize("kind", ["mse", "huber", "quantile"])
def test_validation_has_the_loss_of_training_over_all_its_rows(kind: str) -> None:
    data = tiny_dataset()
    data.y_N[data.mask("validation").nonzero()[0][0]] = 40.0  # clipped in the loss, not in loss_unclipped
    levels = LEVELS if kind == "quantile" else ()
    torch.manual_seed(0)
    network = build_network(MODEL.model_copy(update={"quantiles": levels}), inputs=data.x_NF.shape[1])
    got = validate(network, data, kind=kind, device=torch.device("cpu"), quantiles=levels)
    mask_N = data.mask("validation")
    out_VO = forward_outputs(network, data.x_NF, data.part("validation"))[mask_N].astype(float)
    for clip, loss in ((6.0, got.loss), (np.inf, got.loss_unclipped)):
        y_V = np.clip(data.y_N[mask_N].astype(float), -clip, clip)
        miss_V = np.abs(out_VO[:, 0] - y_V)
        want_V = np.where(miss_V <= 1, miss_V**2 / 2, miss_V - 0.5) if kind == "huber" else miss_V**2
        for index, level in enumerate(levels):
            gap_V = y_V - out_VO[:, 1 + index]
            want_V = want_V + np.where(gap_V > 0, level * gap_V, (level - 1) * gap_V) / 3
        assert loss == pytest.approx(want_V.mean(), rel=1e-9)
    shares = [float((data.y_N[mask_N] <= out_VO[:, 1 + index]).mean()) for index in range(len(levels))]
    assert got.below == tuple(shares)


def test_quantiles_are_learned() -> None:
    from klinepred.training.loop import train

    data, memory = tiny_dataset(), Memory()
    model = MODEL.model_copy(update={"quantiles": LEVELS, "layer_norm": True, "skip": True})
    settings = TRAIN.model_copy(update={"loss": "quantile", "epochs": 10, "lr": 2e-2})
    bundle = train(data, model, settings, tracker=memory)
    out_NO = forward_outputs(bundle.network, data.x_NF, data.part("test"))[data.mask("test")]
    y = data.y_N[data.mask("test")]
    below = [float((y <= out_NO[:, column]).mean()) for column in (1, 2, 3)]
    assert below == pytest.approx(LEVELS, abs=0.1)
    held_NO = forward_outputs(bundle.network, data.x_NF, data.part("validation"))[data.mask("validation")]
    share = float((data.y_N[data.mask("validation")] <= held_NO[:, 2]).mean())
    assert memory.series("val_below_q0.5")[bundle.provenance["best_epoch"] - 1] == share
    # the middle of the target is its feature 0: both the expected value and the median have found it
    assert np.corrcoef(out_NO[:, 0], data.x_NF[data.mask("test"), 0])[0, 1] > 0.6
    assert np.corrcoef(out_NO[:, 2], data.x_NF[data.mask("test"), 0])[0, 1] > 0.6
