"""In: whether TF32 is wanted. Out: torch's float32 switches set to exactly that for the length of a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def float32_products(*, tf32: bool) -> Iterator[None]:
    """Set how float32 products are computed: exactly, or on CUDA in TF32; the switches come back as they were.

    Each operator has its own switch (torch 2.9 and later). Those of before, `allow_tf32`, do not suffice: turned off,
    they leave cuDNN to `torch.backends.fp32_precision`, and that may say TF32. On the CPU products are exact in
    either case, whatever `torch.set_float32_matmul_precision` was told.
    """
    switches = _switches(tf32=tf32)
    before = [getattr(place, name) for place, name, _ in switches]
    try:
        for place, name, value in switches:
            setattr(place, name, value)
        yield
    finally:
        for (place, name, _), value in zip(switches, before, strict=True):
            setattr(place, name, value)


def _switches(*, tf32: bool) -> list[tuple[Any, str, Any]]:
    backends: Any = torch.backends
    if not hasattr(backends.cudnn, "rnn"):
        return [(place, "allow_tf32", tf32) for place in (backends.cuda.matmul, backends.cudnn)]
    on_cuda = (backends.cuda.matmul, backends.cudnn.rnn, backends.cudnn.conv)
    on_cpu = [getattr(backends.mkldnn, name) for name in ("matmul", "rnn", "conv")]
    return [
        *((place, "fp32_precision", "tf32" if tf32 else "ieee") for place in on_cuda),
        *((place, "fp32_precision", "ieee") for place in on_cpu),
    ]
