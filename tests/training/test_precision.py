"""In: settings and a device. Out: which precision is taken, what it says, what it leaves behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from klinepred.errors import UsageError
from klinepred.settings import TrainSettings
from klinepred.training import precision as room
from klinepred.training.precision import choose_device, cpu_remark, lower, resolve, why_no_cuda

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)
BACKENDS: Any = torch.backends  # its newer switches are not in the types


def test_plain_training_is_fp32_without_autocast_or_scaler() -> None:
    found = resolve(TrainSettings(), CPU)
    assert (found.name, found.dtype, found.scaled, found.remarks) == ("fp32", None, False, ())
    with found.autocast():
        assert not torch.is_autocast_enabled("cpu")
    assert not found.scaler(TrainSettings()).is_enabled()


def test_precision_fp32_overrules_amp() -> None:
    assert resolve(TrainSettings(amp=True, precision="fp32"), CUDA).name == "fp32"


def test_amp_on_a_cpu_is_bf16_with_measured_figures() -> None:
    found = resolve(TrainSettings(amp=True), CPU)
    assert (found.name, found.dtype, found.scaled) == ("bf16", torch.bfloat16, False)
    assert "ms in bf16 and" in found.remarks[0]


@pytest.mark.parametrize(
    ("full", "half", "say"), [(1.0, 1.4, "slower"), (1.0, 1.0, "no speed"), (2.0, 1.0, "2.0 times")]
)
def test_the_cpu_remark_follows_the_measurement(
    full: float, half: float, say: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_cpu_step_ms", lambda: (full, half))
    assert say in cpu_remark()


def test_measuring_leaves_the_random_state_alone() -> None:
    torch.manual_seed(5)
    want = torch.rand(3)
    torch.manual_seed(5)
    room._cpu_step_ms.__wrapped__()
    assert torch.equal(torch.rand(3), want)


def pretend_card(monkeypatch: pytest.MonkeyPatch, *, native: bool) -> None:
    """Answer questions about a CUDA card as one with or without native bf16 would; all of them emulate it."""

    def supported(including_emulation: bool = True) -> bool:
        return native or including_emulation

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "some card")
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)


@pytest.mark.parametrize(
    ("wanted", "native", "name", "scaled"),
    [
        ("auto", True, "fp16", True),
        ("auto", False, "fp16", True),
        ("bf16", True, "bf16", False),
        ("bf16", False, "fp16", True),
        ("fp16", False, "fp16", True),
    ],
)
def test_amp_on_cuda_is_fp16_with_a_scaler_and_bf16_only_where_native(
    wanted: str, native: bool, name: str, scaled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_card(monkeypatch, native=native)
    found = resolve(TrainSettings.model_validate({"amp": True, "precision": wanted}), CUDA)
    assert (found.name, found.scaled, found.device) == (name, scaled, "cuda")
    assert bool(found.remarks) == (wanted == "bf16" and name == "fp16")
    assert found.dtype == {"fp16": torch.float16, "bf16": torch.bfloat16}[name]


@pytest.mark.parametrize(("native", "want"), [(True, ["bf16", "fp32"]), (False, ["fp32"])])
def test_the_way_down_on_cuda_leaves_out_emulated_bf16(
    native: bool, want: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_card(monkeypatch, native=native)
    train = TrainSettings(amp=True)
    rung, names = lower(resolve(train, CUDA), train, CUDA), []
    while rung is not None:
        names.append(rung.name)
        assert not rung.scaled
        rung = lower(rung, train, CUDA)
    assert names == want


def test_the_way_down_on_a_cpu_is_fp16_bf16_fp32() -> None:
    train = TrainSettings(precision="fp16")
    second = lower(resolve(train, CPU), train, CPU)
    assert second is not None
    third = lower(second, train, CPU)
    assert third is not None
    assert (second.name, second.native_lstm, third.name, third.reason) == (
        *("bf16", False, "fp32"),
        "fallen back from bf16",
    )
    assert lower(third, train, CPU) is None


def test_fp16_runs_an_lstm_on_the_cpu_and_gives_onednn_back() -> None:
    found = resolve(TrainSettings(precision="fp16"), CPU)
    assert found.scaled
    lstm, x_BTF = nn.LSTM(4, 3, batch_first=True), torch.randn(2, 5, 4)
    exact_BTH = lstm(x_BTF)[0]
    before = torch.backends.mkldnn.enabled
    with found.applied(), found.autocast():
        assert not torch.backends.mkldnn.enabled
        half_BTH = lstm(x_BTF)[0]  # its products are fp16; this kernel carries the state on in fp32
    assert torch.backends.mkldnn.enabled == before
    assert not torch.equal(half_BTH, exact_BTH)
    torch.testing.assert_close(half_BTH.float(), exact_BTH, atol=2e-3, rtol=0.0)


@pytest.fixture
def _switches_back() -> Iterator[None]:
    yield
    BACKENDS.fp32_precision = "none"
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("highest")


def products() -> list[str]:
    """How float32 products are computed: on CUDA by matmul, RNN, convolution; on the CPU by matmul."""
    return [
        BACKENDS.cuda.matmul.fp32_precision,
        BACKENDS.cudnn.rnn.fp32_precision,
        BACKENDS.cudnn.conv.fp32_precision,
        BACKENDS.mkldnn.matmul.fp32_precision,
    ]


@pytest.mark.usefixtures("_switches_back")
@pytest.mark.parametrize("spoil", ["old", "new", "medium"])
def test_tf32_is_off_while_training_whatever_was_set_and_as_before_afterwards(spoil: str) -> None:
    if spoil == "old":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    elif spoil == "new":
        BACKENDS.fp32_precision = "tf32"
    else:
        torch.set_float32_matmul_precision("medium")
    before = products()
    with resolve(TrainSettings(), CPU).applied():
        assert products() == ["ieee"] * 4
    assert products() == before
    if spoil == "old":
        assert torch.backends.cudnn.allow_tf32
    with pytest.raises(ZeroDivisionError), resolve(TrainSettings(), CPU).applied():
        raise ZeroDivisionError
    assert products() == before


@pytest.mark.usefixtures("_switches_back")
def test_tf32_is_on_only_where_it_was_asked_for() -> None:
    found = resolve(TrainSettings(tf32=True), CUDA)
    assert (found.name, found.tf32) == ("fp32", True)
    with found.applied():
        assert products() == ["tf32", "tf32", "tf32", "ieee"]
    on_cpu = resolve(TrainSettings(tf32=True), CPU)
    assert not on_cpu.tf32
    assert on_cpu.remarks == ("train.tf32 is ignored: there is none on a cpu",)
    assert not resolve(TrainSettings(), CUDA).tf32


def test_scaler_settings_arrive() -> None:
    train = TrainSettings(precision="fp16", init_scale=1024.0, growth_interval=7)
    scaler = resolve(train, CPU).scaler(train)
    assert (scaler.get_scale(), scaler.get_growth_interval()) == (1024.0, 7)


def test_a_device_that_is_not_there_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="warp9"):
        choose_device("warp9")
    with pytest.raises(UsageError, match="usable on this machine"):
        choose_device("meta")  # torch computes shapes there, no numbers
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="CUDA"):
            choose_device("cuda")
        assert choose_device("auto") == CPU


def test_the_reason_for_no_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "built without CUDA" in (why_no_cuda() or "")
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr("ctypes.util.find_library", lambda _: None)
    assert "no NVIDIA driver" in (why_no_cuda() or "")
    monkeypatch.setattr("ctypes.util.find_library", lambda _: "libcuda.so")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert "no visible GPU" in (why_no_cuda() or "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert why_no_cuda() is None
