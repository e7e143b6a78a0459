"""In: trainings that run out of memory, on the machine or a card. Out: one message of ours, and a run that failed."""

from __future__ import annotations

import pytest
import torch

from klinepred.errors import TrainingError, out_of_memory
from klinepred.training.room import room_on
from tests.training.tiny import TRAIN, Memory, fit, tiny_dataset


def too_much() -> None:
    torch.empty(10**15, dtype=torch.uint8)


def test_torchs_lack_of_memory_on_a_cpu_is_one_message() -> None:
    with pytest.raises(TrainingError) as caught, room_on(torch.device("cpu")):
        too_much()
    assert caught.value.summary == "memory of this machine"
    assert "1000000000000000 bytes" in caught.value.got
    assert "train.batch" in caught.value.do


def test_lack_of_memory_on_a_card_names_it() -> None:
    with pytest.raises(TrainingError) as caught, room_on(torch.device("cuda:1")):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has 1.00 GiB free.")
    assert caught.value.summary == "memory of cuda:1"
    assert "20.00 GiB" in caught.value.got


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="shapes"), room_on(torch.device("cpu")):
        raise RuntimeError("shapes do not fit")
    assert out_of_memory(ValueError("can't allocate memory")) is None
    assert out_of_memory(MemoryError()) == "none left"


def test_a_training_without_memory_fails_with_that_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klinepred.training.epochs.take_step", lambda *_, **__: too_much())
    memory = Memory()
    with pytest.raises(TrainingError, match="memory of this machine"):
        fit(tiny_dataset(symbols=2), TRAIN, tracker=memory)
    assert memory.status == "FAILED"
