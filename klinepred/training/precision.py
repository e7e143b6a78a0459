"""In: train settings, a device. Out: `Precision`: what autocast and the GradScaler shall do there, and why."""

from __future__ import annotations

import contextlib
import ctypes.util
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import torch
from torch import nn

from klinepred.errors import TrainingError, UsageError
from klinepred.settings import TrainSettings
from klinepred.training.tf32 import float32_products

KINDS: Final = ("cpu", "cuda", "mps", "xpu")


@dataclass(frozen=True)
class Precision:
    """The one mixed-precision path: `autocast()` and a GradScaler, each on or off.

    The parameters of the network stay float32 in any case; loss, normalisation and metrics are float32 too.

    Attributes
    ----------
    name
        fp32, fp16 or bf16.
    device
        Type of the device: cpu, cuda, mps.
    dtype
        What autocast casts to; None = autocast off.
    scaled
        Whether the GradScaler is on (fp16 only: bf16 has the range of float32).
    native_lstm
        Use torch's own LSTM kernel on the CPU; oneDNN has none for fp16.
    reason
        Why this one, in words.
    remarks
        Lines for the user.
    tf32
        Whether float32 products may be TF32 on CUDA; off, fp32 means fp32 on every card.
    """

    name: str
    device: str
    dtype: torch.dtype | None
    scaled: bool
    reason: str
    native_lstm: bool = False
    remarks: tuple[str, ...] = ()
    tf32: bool = False

    def autocast(self) -> torch.autocast:
        """The context of the forward pass."""
        return torch.autocast(self.device, dtype=self.dtype, enabled=self.dtype is not None)

    def scaler(self, settings: TrainSettings) -> torch.amp.GradScaler:
        """A fresh GradScaler for this device; switched off where nothing needs scaling."""
        return torch.amp.GradScaler(
            self.device,
            init_scale=settings.init_scale,
            growth_interval=settings.growth_interval,
            enabled=self.scaled,
        )

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Set torch's global switches (TF32, oneDNN) for the length of a block; they come back as they were."""
        onednn = _switch_onednn(on=False) if self.native_lstm else None
        try:
            with float32_products(tf32=self.tf32):
                yield
        finally:
            if onednn is not None:
                _switch_onednn(on=onednn)


def choose_device(name: str) -> torch.device:
    """The device called `name`; "auto" is CUDA where it works, else the CPU.

    Raises
    ------
    UsageError
        torch knows no such device, or it is not usable here (the reason is given).
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    known = name.partition(":")[0] in KINDS
    try:
        device = torch.device(name if known else "none of these")
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = why_no_cuda() if name.startswith("cuda") else None if known else "a device of another kind"
        raise UsageError(
            f"train.device {name!r}",
            expected="auto, cpu, cuda or cuda:N, usable on this machine",
            got=reason or str(error).splitlines()[0].split(". ")[0][:200],
            do="use --device auto",
        ) from error
    return device


def resolve(train: TrainSettings, device: torch.device) -> Precision:
    """Decide the precision.

    Without `amp` and with precision "auto" it is fp32. With `amp`: fp16 and GradScaler on CUDA, bf16 autocast on the
    CPU (with a measured remark about its speed). precision = "fp32", "fp16" or "bf16" is obeyed, except that bf16 on
    a card without native bf16 becomes fp16.

    Raises
    ------
    TrainingError
        Mixed precision on a device other than CPU and CUDA.
    """
    found = _resolve(train, device)
    if train.tf32 and device.type != "cuda":
        return replace(found, remarks=(*found.remarks, f"train.tf32 is ignored: there is none on a {device.type}"))
    return replace(found, tf32=train.tf32)


def _resolve(train: TrainSettings, device: torch.device) -> Precision:
    asked = "--amp" if train.precision == "auto" else f"precision {train.precision}"
    if train.precision == "fp32" or (train.precision == "auto" and not train.amp):
        reason = "precision fp32 was asked for" if train.precision == "fp32" else "mixed precision was not asked for"
        return Precision("fp32", device.type, None, scaled=False, reason=reason)
    if device.type == "cuda":
        return _on_cuda(train, device, asked)
    if device.type != "cpu":
        raise TrainingError(
            f"mixed precision on {device}",
            expected="a CPU or a CUDA device",
            got=f"{device.type}, where it was never tried",
            do="leave out --amp and --precision, or use --device cpu",
        )
    if train.precision == "fp16":
        remark = "fp16 on a CPU uses torch's native LSTM kernel (oneDNN has none) and is slow: for tests, not for use"
        reason = f"{asked} on a CPU"
        return Precision("fp16", "cpu", torch.float16, True, reason, native_lstm=True, remarks=(remark,))
    reason = f"{asked} on a CPU: bf16 autocast, no scaler"
    return Precision("bf16", "cpu", torch.bfloat16, scaled=False, reason=reason, remarks=(cpu_remark(),))


def _on_cuda(train: TrainSettings, device: torch.device, asked: str) -> Precision:
    card = torch.cuda.get_device_name(device)
    if train.precision == "bf16" and native_bf16(device):
        return Precision("bf16", "cuda", torch.bfloat16, scaled=False, reason=f"{asked}; {card} has native bf16")
    remarks = () if train.precision != "bf16" else (f"{card} only emulates bf16: fp16 with a GradScaler instead",)
    return Precision("fp16", "cuda", torch.float16, True, f"{asked} on {card}: fp16 autocast", remarks=remarks)


def native_bf16(device: torch.device) -> bool:
    """Whether a CUDA device computes in bf16 itself; torch also says yes to cards that merely emulate it."""
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def lower(precision: Precision, train: TrainSettings, device: torch.device) -> Precision | None:
    """The next precision with more range, native on this device: fp16, bf16, fp32; None after fp32."""
    rungs = ("fp16", "bf16", "fp32")
    for name in rungs[rungs.index(precision.name) + 1 :]:
        found = resolve(train.model_copy(update={"precision": name}), device)
        if found.name == name:
            return replace(found, reason=f"fallen back from {precision.name}")
    return None


def cpu_remark() -> str:
    """One line on what bf16 autocast does to speed on this CPU, with the figures it rests on (measured once)."""
    full, half = _cpu_step_ms()
    figures = f"an LSTM step took {half:.1f} ms in bf16 and {full:.1f} ms in fp32"
    if half > 1.05 * full:
        return f"bf16 autocast is slower than fp32 on this CPU ({figures}): leave out --amp here"
    if half > 0.95 * full:
        return f"bf16 autocast brings no speed on this CPU ({figures})"
    return f"bf16 autocast is {full / half:.1f} times as fast as fp32 on this CPU in a short trial ({figures})"


@lru_cache(maxsize=1)
def _cpu_step_ms() -> tuple[float, float]:
    """Milliseconds of one small training step (1 layer of 256, 64 sequences of 16 bars) in fp32 and in bf16."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.LSTM(50, 256, batch_first=True)
        x_BTF = torch.randn(64, 16, 50)
    best = {}
    for half in (False, True):
        times = []
        for _ in range(4):
            start = time.perf_counter()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
                out_BTH = network(x_BTF)[0]
            out_BTH.float().square().mean().backward()
            times.append(time.perf_counter() - start)
        best[half] = 1000.0 * min(times[1:])
    return best[False], best[True]


def why_no_cuda() -> str | None:
    """Why torch does not use a CUDA device here, in one line with the way out; None where it does."""
    if torch.cuda.is_available():
        return None
    if torch.version.hip is not None:
        return f"torch {torch.__version__} is built for ROCm and sees no AMD GPU"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA; install a CUDA build from pytorch.org"
    if ctypes.util.find_library("cuda") is None:
        return f"torch is built for CUDA {torch.version.cuda}, but there is no NVIDIA driver (libcuda)"
    if torch.cuda.device_count() == 0:
        return "there is an NVIDIA driver but no visible GPU (see CUDA_VISIBLE_DEVICES and nvidia-smi)"
    return f"the NVIDIA driver is too old for CUDA {torch.version.cuda}, or the GPU cannot be used (see nvidia-smi)"


def device_name(device: torch.device) -> str:
    """The device in words: `cpu`, or the card's name with its number."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def _switch_onednn(*, on: bool) -> bool:
    # not `torch.backends.mkldnn.flags`: it also sets TF32 and warns of that wherever there is no Intel GPU
    before = torch.backends.mkldnn.set_flags(_enabled=on, _fp32_precision=None)  # type: ignore[no-untyped-call]
    return bool(before[0])


def cards(device: torch.device) -> list[torch.device]:
    """The CUDA devices whose random state a training on `device` changes."""
    return [device] if device.type == "cuda" else []
