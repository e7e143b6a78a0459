"""In: a device. Out: `kept_heap`: memory that a training step frees stays with the process, for the next step."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import torch

# numbers of mallopt's parameters, from glibc's malloc.h
M_TRIM_THRESHOLD: Final = -1
M_MMAP_MAX: Final = -4
GLIBC_MMAP_MAX: Final = 65_536
"""What glibc begins with."""
TRIM_AFTERWARDS: Final = 64 * 2**20
"""Where glibc's own sliding threshold ends once large blocks have been freed."""
NEVER: Final = 2**31 - 1


@contextlib.contextmanager
def kept_heap(device: torch.device) -> Iterator[None]:
    """Within the block, on a CPU, large tensors come from the heap and its freed pages do not go back to the system.

    By itself glibc maps each block of more than 32 MiB afresh and unmaps it when it is freed; the system then zeroes
    every page of it again in the next step. A step of `lstm-3x256` touches some 50,000 such pages: a quarter of its
    time. No number that is computed depends on it. At the end the free pages go back. Where `can_keep` says no, and on
    a GPU, nothing is changed.
    """
    library = _glibc()
    if library is None or device.type != "cpu":
        yield
        return
    library.mallopt(M_MMAP_MAX, 0)
    library.mallopt(M_TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        library.mallopt(M_MMAP_MAX, GLIBC_MMAP_MAX)
        library.mallopt(M_TRIM_THRESHOLD, TRIM_AFTERWARDS)
        library.malloc_trim(0)


def can_keep() -> bool:
    """Whether `kept_heap` can do anything on this machine: on Linux with glibc."""
    return _glibc() is not None


@lru_cache(maxsize=1)
def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if all(hasattr(library, name) for name in ("mallopt", "malloc_trim")) else None
