"""In: one optimiser step. Out: its order of calls, its clipping, its skipping, against hand-made numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import nn

from klinepred.settings import TrainSettings
from klinepred.training.precision import Precision, resolve
from klinepred.training.ranks import Ranks
from klinepred.training.step import Spread, clip_gradients, masked_loss, take_step

CPU = torch.device("cpu")
FP16 = TrainSettings(precision="fp16")


class Fixed(nn.Module):
    """Two weights; the loss of `batch(a, b)` has the gradient (a, b) whatever they are."""

    def __init__(self, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, dtype=dtype))

    def forward(self, x_BTF: torch.Tensor) -> torch.Tensor:
        return (x_BTF * self.weight).sum(-1, keepdim=True)


def batch(first: float, second: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    # loss = (0 - y)^2 with y = -1/2: d loss / d pred = 1, so the gradient is x itself
    x_BTF = torch.tensor([[[first, second]]])
    return x_BTF, torch.full((1, 1), -0.5), torch.ones(1, 1, dtype=torch.bool)


@pytest.mark.parametrize(
    ("first", "second", "want", "norm"), [(3.0, 4.0, (0.6, 0.8), 5.0), (0.003, 0.004, None, 0.005)]
)
def test_gradients_are_unscaled_before_they_are_clipped(
    first: float, second: float, want: tuple[float, float] | None, norm: float
) -> None:
    network = Fixed()
    optimiser = torch.optim.SGD(network.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    precision = Precision("fp32", "cpu", None, scaled=True, reason="")
    result = take_step(
        network, optimiser, scaler, batch(first, second), precision=precision, train=TrainSettings(clip_norm=1.0)
    )
    assert network.weight.grad is not None
    assert network.weight.grad.tolist() == pytest.approx(list(want or (first, second)), rel=1e-5)
    assert network.weight.tolist() == pytest.approx([-g for g in (want or (first, second))], rel=1e-5)
    assert result.norm == pytest.approx(norm, rel=1e-6)
    assert result.clipped == (want is not None)
    assert (result.scale, result.skipped) == (65536.0, False)


def test_clip_by_value_reports_the_norm_before_it() -> None:
    network = Fixed()
    network.weight.grad = torch.tensor([3.0, -4.0])
    assert clip_gradients(network, TrainSettings(clip="value", clip_value=0.5)) == (5.0, True)
    assert network.weight.grad.tolist() == [0.5, -0.5]
    network.weight.grad = torch.tensor([0.3, -0.4])
    norm, clipped = clip_gradients(network, TrainSettings(clip="value", clip_value=0.5))
    assert norm == pytest.approx(0.5)
    assert not clipped
    assert network.weight.grad.tolist() == pytest.approx([0.3, -0.4])


def test_the_calls_come_in_the_only_right_order(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def spy(owner: Any, name: str, label: str) -> None:
        true: Callable[..., Any] = getattr(owner, name)

        def called(*args: Any, **options: Any) -> Any:
            calls.append(label)
            return true(*args, **options)

        monkeypatch.setattr(owner, name, called)

    spy(torch.autocast, "__enter__", "autocast")
    spy(torch.autocast, "__exit__", "autocast off")
    for name in ("scale", "unscale_", "step", "update"):
        spy(torch.amp.GradScaler, name, name)
    spy(torch.Tensor, "backward", "backward")
    spy(nn.utils, "clip_grad_norm_", "clip")
    spy(torch.optim.AdamW, "zero_grad", "zero_grad")
    network = Fixed()
    precision = resolve(FP16, CPU)
    take_step(
        network,
        torch.optim.AdamW(network.parameters()),
        precision.scaler(FP16),
        batch(1.0, 1.0),
        precision=precision,
        train=FP16,
        watch=lambda _: calls.append("watch"),
    )
    assert calls == [
        *("autocast", "autocast off", "zero_grad", "scale", "backward", "unscale_"),
        *("watch", "clip", "step", "update"),
    ]


def test_an_overflow_skips_the_step_and_halves_the_scale() -> None:
    network = Fixed()
    optimiser = torch.optim.AdamW(network.parameters())
    precision = resolve(FP16, CPU)
    scaler = precision.scaler(FP16)
    result = take_step(network, optimiser, scaler, batch(1e35, 1.0), precision=precision, train=FP16)
    assert result.skipped
    assert (result.scale, scaler.get_scale()) == (65536.0, 32768.0)
    assert network.weight.tolist() == [0.0, 0.0]
    assert not optimiser.state  # nothing was counted either
    result = take_step(network, optimiser, scaler, batch(1.0, 1.0), precision=precision, train=FP16)
    assert (result.skipped, result.scale) == (False, 32768.0)


@pytest.mark.parametrize("clip", ["norm", "value"])
def test_without_a_scaler_infinite_gradients_leave_the_weights_alone_too(clip: str) -> None:
    network = Fixed()
    train = TrainSettings.model_validate({"clip": clip})
    precision = resolve(train, CPU)
    optimiser = torch.optim.AdamW(network.parameters())
    for bad in (float("inf"), float("nan")):
        result = take_step(
            network, optimiser, precision.scaler(train), batch(bad, 1.0), precision=precision, train=train
        )
        assert (result.skipped, result.clipped, result.scale) == (True, False, 1.0)
    assert network.weight.tolist() == [0.0, 0.0]
    assert not optimiser.state


def test_the_loss_is_the_mean_over_labelled_rows_only() -> None:
    pred = torch.tensor([[[1.0], [2.0], [9.0]]])
    y = torch.tensor([[0.5, -1.0, 0.0]])
    labelled = torch.tensor([[True, True, False]])
    assert float(masked_loss(pred, y, labelled, kind="mse")) == pytest.approx((0.25 + 9.0) / 2)
    assert float(masked_loss(pred, y, labelled, kind="huber")) == pytest.approx((0.125 + 2.5) / 2)


def test_a_batch_that_two_processes_divide_is_weighed_by_the_labels_of_both() -> None:
    """This process has one labelled row of four, the other three; the gradients of both are averaged elsewhere."""

    class Both:
        world = 2

        def sums(self, value: float) -> tuple[float, ...]:
            return (value + 0.4375,)  # what the other process adds: half of its loss

    network, train = Fixed(), TrainSettings(clip_norm=100.0)
    precision = resolve(train, CPU)
    result = take_step(
        network,
        torch.optim.SGD(network.parameters(), lr=1.0),
        precision.scaler(train),
        batch(3.0, 4.0),
        precision=precision,
        train=train,
        spread=Spread(network, 4, cast(Ranks, Both())),
    )
    assert network.weight.grad is not None
    assert network.weight.grad.tolist() == [1.5, 2.0]  # (3, 4) times two processes over four labels
    assert result.loss == pytest.approx(0.25 / 4 + 0.4375)
    assert result.norm == pytest.approx(2.5)
    assert not result.clipped


def test_the_loss_of_a_half_precision_forecast_is_float32() -> None:
    pred = torch.tensor([[[300.0]]], dtype=torch.float16)  # squared: 90000, beyond fp16
    loss = masked_loss(pred, torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool), kind="mse")
    assert loss.dtype == torch.float32
    assert float(loss) == 90000.0
