"""In: large tensors, made and freed. Out: their pages stay until the block ends; the numbers are the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from klinepred.settings import TrainSettings
from klinepred.training.cpu import cpu_path
from klinepred.training.heap import can_keep, kept_heap
from klinepred.training.precision import resolve

CPU = torch.device("cpu")
BLOCK = 256 * 2**20

linux = pytest.mark.skipif(not can_keep(), reason="only glibc on Linux keeps freed memory on request")


def resident() -> int:
    """Bytes of this process that lie in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def settled() -> int:
    """The same, once what earlier tests have freed has gone back."""
    with kept_heap(CPU):
        pass
    return resident()


def use() -> None:
    """Take a block, touch each of its pages, free it."""
    torch.zeros(BLOCK // 4).add_(1.0)


def fail() -> None:
    """Use memory, then fail."""
    use()
    raise RuntimeError("after use")


@linux
def test_freed_pages_stay_within_the_block_and_go_back_at_its_end() -> None:
    before = settled()
    with kept_heap(CPU):
        use()
        assert resident() - before > 0.9 * BLOCK
    assert resident() - before < 0.2 * BLOCK
    use()
    assert resident() - before < 0.2 * BLOCK


@linux
def test_freed_pages_go_back_after_an_error_too() -> None:
    before = settled()
    with pytest.raises(RuntimeError, match="after use"), kept_heap(CPU):
        fail()
    assert resident() - before < 0.2 * BLOCK


@linux
def test_a_gpu_needs_no_heap() -> None:
    before = settled()
    with kept_heap(torch.device("cuda")):
        use()
        assert resident() - before < 0.2 * BLOCK


def test_the_path_names_kernel_threads_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_only = cpu_path(resolve(TrainSettings(precision="fp16"), CPU))
    assert torch_only.startswith("torch's own LSTM with ")
    assert f"{torch.get_num_threads()} threads" in torch_only
    if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        assert cpu_path(resolve(TrainSettings(), CPU)).startswith("oneDNN's LSTM with ")
    monkeypatch.setattr("klinepred.training.cpu.can_keep", lambda: False)
    assert cpu_path(resolve(TrainSettings(), CPU)).endswith("freed memory is given back to the system")
