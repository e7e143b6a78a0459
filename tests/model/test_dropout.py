"""In: numbers and LSTMs on the CPU. Out: whether dropout's own masks are fair, repeatable and leave the rest alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from klinepred.model.dropout import Dropout, DropoutLSTM, drop, layer_by_layer


@pytest.mark.parametrize("probability", [0.1, 0.25, 0.5])
def test_the_share_that_falls_is_the_probability_and_the_mean_stays(probability: float) -> None:
    torch.manual_seed(1)
    x = torch.ones(1000, 1003)  # not a multiple of four numbers
    out = drop(x, probability)
    fallen = float((out == 0).double().mean())
    error = (probability * (1 - probability) / x.numel()) ** 0.5
    assert abs(fallen - probability) < 5 * error + 1 / 2**17
    assert float(out.double().mean()) == pytest.approx(1.0, abs=5 * error / (1 - probability))
    (kept,) = set(out[out != 0].tolist())
    assert kept == pytest.approx(1 / (1 - probability), rel=2e-5)


def test_neighbours_and_repetitions_fall_independently() -> None:
    torch.manual_seed(2)
    first, second = (drop(torch.ones(200_001), 0.5) == 0 for _ in range(2))
    bound = 5 * (0.25 * 0.75 / 200_000) ** 0.5
    for one, other in ((first, second), (first[1:], first[:-1]), (first[4:], first[:-4])):
        assert abs(float((one & other).double().mean()) - 0.25) < bound


def test_nothing_falls_at_zero_and_everything_at_one() -> None:
    x = torch.randn(7, 5)
    before = torch.get_rng_state()
    assert drop(x, 0.0) is x
    assert torch.equal(torch.get_rng_state(), before)
    assert not drop(x, 1.0).any()


def test_torchs_saved_random_state_repeats_the_mask_and_goes_on_to_another() -> None:
    torch.manual_seed(3)
    drop(torch.ones(10), 0.5)
    state = torch.get_rng_state()
    x = torch.ones(64, 64)
    first, second = drop(x, 0.5), drop(x, 0.5)
    torch.set_rng_state(state)
    assert torch.equal(drop(x, 0.5), first)
    assert not torch.equal(first, second)


def test_a_gradient_reaches_only_what_stayed() -> None:
    torch.manual_seed(4)
    x = torch.ones(50, 50, requires_grad=True)
    out = drop(x, 0.3)
    torch.autograd.backward(out.sum())
    assert x.grad is not None
    assert torch.equal(x.grad, out.detach())


def test_half_precision_stays_and_its_mean_too() -> None:
    torch.manual_seed(5)
    out = drop(torch.ones(1000, 1000, dtype=torch.bfloat16), 0.1)
    assert out.dtype == torch.bfloat16
    # 1 / 0.9 in bf16 is 1.109375
    assert float(out.max()) == 1.109375


def test_the_module_is_still_in_evaluation() -> None:
    x = torch.randn(4, 4)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert (Dropout(0.5)(torch.ones(1000)) == 0).any()


def test_layer_by_layer_without_dropout_is_torchs_lstm_to_the_bit() -> None:
    torch.manual_seed(6)
    own, torchs = DropoutLSTM(5, 8, 3, batch_first=True), nn.LSTM(5, 8, 3, batch_first=True)
    torchs.load_state_dict(own.state_dict())
    x = torch.randn(4, 9, 5)
    state = (torch.randn(3, 4, 8), torch.randn(3, 4, 8))
    for begin in (None, state):
        out, (hidden, cell) = layer_by_layer(own, x, begin)
        right, (hidden_right, cell_right) = torchs(x, begin)
        assert torch.equal(out, right)
        assert torch.equal(hidden, hidden_right)
        assert torch.equal(cell, cell_right)
        own.zero_grad()
        torchs.zero_grad()
        torch.autograd.backward(out.square().sum())
        torch.autograd.backward(right.square().sum())
        for one, other in zip(own.parameters(), torchs.parameters(), strict=True):
            assert one.grad is not None
            assert other.grad is not None
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-6)


def test_the_lstm_drops_in_training_alone_and_between_layers_alone() -> None:
    torch.manual_seed(7)
    lstm = DropoutLSTM(5, 8, 2, batch_first=True, dropout=0.5)
    x = torch.randn(4, 9, 5)
    assert not torch.equal(lstm(x)[0], lstm(x)[0])
    assert (lstm(x)[0] != 0).all()  # the last layer's own output does not fall
    plain = nn.LSTM(5, 8, 2, batch_first=True)
    plain.load_state_dict(lstm.state_dict())
    assert torch.equal(lstm.eval()(x)[0], plain(x)[0])


def test_a_forecast_of_many_masks_has_the_mean_of_the_first_layer_in_the_second() -> None:
    """With weights so small that the second layer is nearly linear, the mean over masks is the answer without any."""
    torch.manual_seed(8)
    lstm = DropoutLSTM(3, 4, 2, batch_first=True, dropout=0.4)
    with torch.no_grad():
        for weight in lstm.parameters():
            weight.mul_(0.1)
    x = torch.randn(1, 2, 3)
    with torch.no_grad():
        out = lstm(x.expand(20_000, 2, 3))[0].double()
        right = lstm.eval()(x)[0][0].double()
    error = out.std(0) / 20_000**0.5
    assert ((out.mean(0) - right).abs() < 5 * error + 1e-6).all()
