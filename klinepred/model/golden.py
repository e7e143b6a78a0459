"""In: a network, rows of its dataset. Out: `Golden`: a few inputs and what it answers; whether it still answers so."""

# Shapes: B sequences, T steps, F features, O outputs of the network, N rows of a dataset.

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from safetensors.numpy import load, save
from torch import nn

from klinepred import __version__
from klinepred.dataset.sequences import Sequences
from klinepred.errors import ModelError

FILE: Final = "golden.safetensors"
SEQUENCES: Final = 2
STEPS: Final = 16
"""Sequences kept, and steps of each (a network that reads a whole window keeps its length)."""
CHEAP: Final = 50_000_000
"""Multiplications of one check that cost a few milliseconds: up to here it is made whenever a model is loaded."""
TOLERANCE: Final = {"cpu": 1e-5, "other": 1e-3, "half": 5e-2}
"""Largest difference that passes, in units of volatility beside as much of the value: float32 on a processor; float32
on another device, whose kernels may take TensorFloat-32; fp16 and bf16."""


@dataclass(frozen=True)
class Golden:
    """Inputs and outputs of a network when it was made.

    Attributes
    ----------
    x_BTF
        Scaled features, Float32, of real rows.
    out_BTO
        What the network said, Float32; NaN where it has no output.
    made
        On what: device, dtype, torch, klinepred.
    """

    x_BTF: np.ndarray
    out_BTO: np.ndarray
    made: Mapping[str, str]

    def to_bytes(self) -> bytes:
        """The arrays as safetensors."""
        return save({"inputs": self.x_BTF, "outputs": self.out_BTO})

    @classmethod
    def from_bytes(cls, payload: bytes, made: Mapping[str, Any]) -> Golden:
        """The inverse of `to_bytes`; KeyError or SafetensorError where it is none."""
        arrays = load(payload)
        return cls(arrays["inputs"], arrays["outputs"], {str(key): str(text) for key, text in made.items()})


def make_golden(network: nn.Module, x_NF: np.ndarray, sequences: Sequences, *, flatten: int = 0) -> Golden | None:
    """The first steps of sequences spread over `sequences`, and the network's answers; None where there are none.

    Parameters
    ----------
    network
        On the CPU, in eval mode.
    flatten
        Steps it reads at once, as `ModelSettings.flatten`.
    """
    if len(sequences) == 0:
        return None
    steps = flatten or min(STEPS, int(sequences.length_S.max()))
    start_S = sequences.start_S[sequences.length_S >= steps]
    picked_B = np.unique(np.linspace(0, start_S.size - 1, SEQUENCES).round().astype(np.int64))
    x_BTF = x_NF[start_S[picked_B][:, None] + np.arange(steps)]
    return Golden(x_BTF, _answer(network, x_BTF, device=torch.device("cpu"), dtype=torch.float32), here())


def here(device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> dict[str, str]:
    """What a network would answer on now, as `Golden.made` has it."""
    kind = torch.device(device)
    name = torch.cuda.get_device_name(kind) if kind.type == "cuda" else f"{kind.type} {platform.machine()}"
    if kind.type == "cpu":
        name = f"{name} {torch.backends.cpu.get_cpu_capability()}"
    return {
        "device": name,
        "dtype": str(dtype).removeprefix("torch."),
        "torch": str(torch.__version__),
        "klinepred": __version__,
    }


def needs_check(network: nn.Module, golden: Golden) -> bool:
    """Whether a network that was read from a folder is to be checked: always where it costs next to nothing."""
    batch, steps, _ = golden.x_BTF.shape
    work = batch * sum(
        tensor.numel() * (steps if name.startswith("lstm.") or ".lstm." in name else 1)
        for name, tensor in network.named_parameters()
    )
    return work <= CHEAP or dict(golden.made) != here()


def check_golden(
    network: nn.Module,
    golden: Golden,
    *,
    name: str,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> float:
    """The largest difference between what the network says of its golden inputs and what it said when it was made.

    Parameters
    ----------
    name
        Of the model, for the message.
    device, dtype
        Where and in what to run it; half precision goes through autocast. The network must lie on the device.

    Raises
    ------
    ModelError
        It lies beyond `TOLERANCE`; the message has both numbers.
    """
    kind = torch.device(device)
    got_BTO = _answer(network, golden.x_BTF, device=kind, dtype=dtype)
    want_BTO = golden.out_BTO
    limit = TOLERANCE["half" if dtype != torch.float32 else "cpu" if kind.type == "cpu" else "other"]
    now = here(kind, dtype)
    if got_BTO.shape != want_BTO.shape:
        raise _differs(name, golden, now, limit, want=f"outputs {want_BTO.shape}", got=f"{got_BTO.shape}")
    apart_BTO = np.abs(got_BTO.astype(np.float64) - want_BTO)
    apart_BTO[np.isnan(got_BTO) & np.isnan(want_BTO)] = 0.0
    if (bad := ~(apart_BTO <= limit * (1.0 + np.abs(np.nan_to_num(want_BTO))))).any():
        spot = np.unravel_index(int(np.where(bad, np.nan_to_num(apart_BTO, nan=np.inf), -1.0).argmax()), bad.shape)
        where = f" at step {spot[1] + 1} of golden sequence {spot[0] + 1}"
        raise _differs(name, golden, now, limit, want=f"{want_BTO[spot]:.7g}{where}", got=f"{got_BTO[spot]:.7g}")
    return float(apart_BTO.max())


@torch.no_grad()
def _answer(network: nn.Module, x_BTF: np.ndarray, *, device: torch.device, dtype: torch.dtype) -> np.ndarray:
    with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
        out_BTO: np.ndarray = network(torch.from_numpy(x_BTF).to(device)).float().cpu().numpy()
    return out_BTO


def _differs(name: str, golden: Golden, now: Mapping[str, str], limit: float, *, want: str, got: str) -> ModelError:
    changed = [key for key, text in now.items() if golden.made.get(key) != text]
    was = ", ".join(f"{key} {golden.made.get(key)}" for key in changed)
    return ModelError(
        f"model {name} does not answer as when it was trained",
        expected=f"{want} within {limit:g}" + (f", as on {was}" if was else ""),
        got=got + (f" on {', '.join(f'{key} {now[key]}' for key in changed)}" if changed else ""),
        do="use the versions and the device it was trained with, or train again with these"
        if changed
        else "its weights were changed after training: fetch the model again, or train again",
    )
