"""In: small trainings stopped anywhere. Out: resumed, they end where they would have ended, bit for bit."""

from __future__ import annotations

import logging
import signal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from klinepred.dataset.make import Dataset
from klinepred.settings import TrainSettings
from klinepred.training.checkpoint import load_checkpoint
from klinepred.training.saver import Saver
from klinepred.training.signals import TrainingStopped
from tests.training.tiny import TRAIN, Diary, Memory, equal, fit, tiny_dataset, weights

STEPS = 9  # 24 sequences in batches of 10, three epochs
KINDS = {
    "fp32": TRAIN,
    "bf16": TRAIN.model_copy(update={"precision": "bf16"}),
    "fp16": TRAIN.model_copy(update={"precision": "fp16", "init_scale": 2.0**19, "growth_interval": 2}),
}
SERIES = ("step/loss", "step/lr", "gradient/norm", "amp/loss_scale", "amp/skipped_steps", "train_loss", "val_loss")


@cache
def data() -> Dataset:
    return tiny_dataset(symbols=2)


@cache
def uninterrupted(kind: str) -> tuple[dict[str, torch.Tensor], Memory]:
    memory = Memory()
    return weights(fit(data(), KINDS[kind], tracker=memory)), memory


def stop_at(step: int, train: TrainSettings, place: Path, *, memory: Memory, resume: Path | None = None) -> None:
    stopper = Diary(at_step=step, then=lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(TrainingStopped):
        fit(data(), train, tracker=memory, progress=stopper, checkpoint=place, resume=resume)


@settings(max_examples=12)
@given(kind=st.sampled_from(sorted(KINDS)), first=st.integers(1, STEPS - 1), second=st.integers(2, STEPS))
def test_a_run_stopped_twice_anywhere_equals_one_that_was_not(kind: str, first: int, second: int) -> None:
    want, whole = uninterrupted(kind)
    if kind == "fp16":
        assert 0.0 < whole.series("amp/skipped_steps")[-1] < STEPS - 3
    parts = Memory()
    with TemporaryDirectory() as folder:
        place = Path(folder) / "run.pt"
        stop_at(first, KINDS[kind], place, memory=parts)
        if second > first:
            stop_at(second, KINDS[kind], place, memory=parts, resume=place)
        assert equal(weights(fit(data(), KINDS[kind], tracker=parts, resume=place)), want)
    for name in SERIES:
        assert parts.series(name) == whole.series(name), name


@pytest.mark.parametrize("step", [2, 5])
def test_a_run_that_dies_without_a_word_goes_on_from_the_last_timed_checkpoint(step: int, tmp_path: Path) -> None:
    def die() -> None:
        raise ZeroDivisionError

    want, _ = uninterrupted("fp32")
    memory, place = Memory(), tmp_path / "run.pt"
    often = TRAIN.model_copy(update={"save_minutes": 1e-9})
    with pytest.raises(ZeroDivisionError):
        fit(data(), often, tracker=memory, progress=Diary(at_step=step, then=die), checkpoint=place)
    assert load_checkpoint(place)["counters"]["tried"] in {step - 1, step // 3 * 3}  # later where writing takes long
    assert len(memory.series("step/loss")) == step  # the record of what was lost is there
    assert equal(weights(fit(data(), often, resume=place)), want)


def test_a_checkpoint_is_due_after_the_minutes_and_later_where_writing_takes_long() -> None:
    now, written = [0.0], [0]

    def write() -> None:
        now[0] += took
        written[0] += 1

    took = 1.0
    save = Saver(write, minutes=2.0, clock=lambda: now[0])
    now[0] = 119.0
    assert not save.due
    now[0] = 120.0
    assert save.due
    save()  # took one second: 2 % of 50
    assert not save.due
    now[0] = 121.0 + 120.0
    assert save.due
    took = 10.0
    save()  # until 251
    now[0] = 251.0 + 499.0
    assert not save.due
    now[0] = 251.0 + 500.0
    assert save.due
    assert written == [2]


def test_more_epochs_under_the_cosine_are_not_a_longer_run_and_it_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "run.pt"
    two, four = (TRAIN.model_copy(update={"epochs": number}) for number in (2, 4))
    parts, whole = Memory(), Memory()
    fit(data(), two, tracker=parts, checkpoint=place)
    with caplog.at_level(logging.WARNING):
        fit(data(), four, tracker=parts, resume=place)
    fit(data(), four, tracker=whole)
    assert "goes on as in a run of 4 epochs, but until here it fell as in one of 2" in caplog.text
    assert parts.series("step/lr")[6:] == whole.series("step/lr")[6:]  # from here on, the plan of four epochs
    assert parts.series("step/lr")[:6] != whole.series("step/lr")[:6]


def test_a_run_that_has_ended_is_not_trained_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "run.pt"
    want = weights(fit(data(), TRAIN, checkpoint=place))
    memory = Memory()
    with caplog.at_level(logging.WARNING):
        assert equal(weights(fit(data(), TRAIN, tracker=memory, resume=place)), want)
    assert "nothing is left to train: the run had ended after epoch 3 of 3" in caplog.text
    assert memory.series("step/loss") == []


def test_features_that_differ_in_the_last_digits_are_taken_with_a_word_and_others_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from klinepred.errors import TrainingError

    place = tmp_path / "run.pt"
    stop_at(4, TRAIN, place, memory=Memory())
    near, far = tiny_dataset(symbols=2), tiny_dataset(symbols=2)
    near.x_NF[:] *= 1.0 + 1e-6
    far.x_NF[:] *= 1.01
    with caplog.at_level(logging.WARNING):
        fit(near, TRAIN, resume=place)
    assert "last digits" in caplog.text
    with pytest.raises(TrainingError, match="another data set"):
        fit(far, TRAIN, resume=place)
