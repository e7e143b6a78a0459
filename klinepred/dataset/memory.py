"""In: how many rows and features. Out: the matrix they go into, in memory or in a file; how much is needed and free."""

# Shapes: N rows, F features.

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

import numpy as np

SHARE: Final = 0.5
"""Largest share of the memory that is free which a matrix and what stands beside it may take; else it is a file."""
PER_ROW: Final = 120
"""Bytes of a row beside its features: symbol, stamps, sessions, close, target, unit, part; while they are made, too."""


def matrix_bytes(rows: int, features: int) -> int:
    """Size of a Float32 matrix."""
    return 4 * rows * features


def free_bytes() -> int | None:
    """Memory that this process may still take, by the machine and by its control group; None = not known."""
    found = [value for value in (_machine(), _group("/sys/fs/cgroup")) if value is not None]
    return min(found) if found else None


def fits_memory(rows: int, features: int, *, free: int | None) -> bool:
    """Whether matrix and rows leave enough of the free memory to work with; what is not known is taken to be enough."""
    return free is None or matrix_bytes(rows, features) + PER_ROW * rows <= SHARE * free


def new_matrix(rows: int, features: int, *, on_disk: bool = False, folder: Path | None = None) -> np.ndarray:
    """Zeros [N, F], Float32, C order.

    Parameters
    ----------
    on_disk
        Memory-mapped: a file without a name, so that it is gone with the array or the process. What is read of it
        stays in memory as long as there is room.
    folder
        Where that file lies; default: the folder for temporary files (TMPDIR).

    Raises
    ------
    OSError
        No room for the file.
    """
    if not on_disk or rows * features == 0:
        return np.zeros((rows, features), dtype=np.float32)
    size = matrix_bytes(rows, features)
    with tempfile.TemporaryFile(prefix="klinepred-", dir=folder) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is an error here, not a crash while writing
        return np.memmap(file, dtype=np.float32, mode="w+", shape=(rows, features))


def _machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def _group(folder: str) -> int | None:
    """Room left in a control group of version 2; pages of files count as free."""
    try:
        limit = (Path(folder) / "memory.max").read_text(encoding="ascii").strip()
        used = int((Path(folder) / "memory.current").read_text(encoding="ascii"))
        stat = (Path(folder) / "memory.stat").read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    if limit == "max":
        return None
    cached = sum(int(line.split()[1]) for line in stat.splitlines() if line.startswith("inactive_file "))
    return max(0, int(limit) - used + cached)
