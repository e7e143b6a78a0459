"""In: a precision. Out: which way a training on the CPU takes, in words, for `doctor` and the record of the run."""

from __future__ import annotations

import torch

from klinepred.training.heap import can_keep
from klinepred.training.precision import Precision


def cpu_path(precision: Precision) -> str:
    """Kernel, instruction set, threads and memory of a training on the CPU.

    oneDNN's LSTM is the faster one in all shapes tried (LOG.md), so that it is used wherever it can be; which kernel
    runs is never decided by a measurement, since the same seed is to give the same numbers.
    """
    onednn = torch.backends.mkldnn.is_available() and not precision.native_lstm  # type: ignore[no-untyped-call]
    kernel = "oneDNN's LSTM" if onednn else "torch's own LSTM"
    heap = "kept for the next step" if can_keep() else "given back to the system"
    threads = torch.get_num_threads()
    return f"{kernel} with {torch.backends.cpu.get_cpu_capability()}, {threads} threads, freed memory is {heap}"
