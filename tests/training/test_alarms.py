"""In: records made by hand. Out: which alarms are said, once each, in the log and as a tag of the run."""

from __future__ import annotations

import logging

import pytest

from klinepred.training.alarms import RECORDS, Alarms
from tests.training.tiny import TRAIN, Memory, fit, tiny_dataset


def values(
    *, scale: float = 65536.0, zeros: float = 0.0, below: float = 0.0, nonfinite: float = 0.0
) -> dict[str, float]:
    """A record with one layer."""
    return {
        "amp/loss_scale": scale,
        "gradient/zero_share/lstm.l0": zeros,
        "gradient/subnormal_share/lstm.l0": below,
        "gradient/nonfinite/lstm.l0": nonfinite,
    }


@pytest.mark.parametrize(
    ("scale", "scaled", "say"),
    [
        (2.0, True, ""),
        (1.0, True, "fallen to 1"),
        (2.0**-9, True, "fallen to 1"),
        (2.0**23, True, ""),
        (2.0**24, True, "reached 2^24"),
        (1.0, False, ""),
    ],
)
def test_the_loss_scale_has_a_floor_and_a_ceiling(
    scale: float, scaled: bool, say: str, caplog: pytest.LogCaptureFixture
) -> None:
    memory = Memory()
    alarms = Alarms(memory)
    with caplog.at_level(logging.WARNING):
        alarms.look(values(scale=scale), step=10, scaled=scaled)
        alarms.look(values(scale=scale), step=20, scaled=scaled)
    assert len(caplog.records) == bool(say)
    assert say in memory.tags.get("alarms", "")
    assert ("step 10: " in memory.tags.get("alarms", "")) == bool(say)


@pytest.mark.parametrize(
    ("zeros", "below", "scaled", "say"),
    [
        (1.0, 0.0, True, "vanished gradients: nearly all of layer lstm.l0"),
        (1.0, 0.0, False, "vanished gradients"),
        (0.98, 0.0, False, ""),
        (0.1, 0.45, True, "below fp16's normal range"),
        (0.1, 0.45, False, ""),
        (0.1, 0.3, True, ""),
    ],
)
def test_gradients_that_vanish_in_several_records_are_named_by_layer(
    zeros: float, below: float, scaled: bool, say: str
) -> None:
    memory = Memory()
    alarms = Alarms(memory)
    for step in range(1, RECORDS):
        alarms.look(values(zeros=zeros, below=below), step=step, scaled=scaled)
    assert memory.tags == {}
    alarms.look(values(zeros=0.0), step=RECORDS, scaled=scaled)  # one sound record begins the count anew
    for step in range(RECORDS + 1, 2 * RECORDS):
        alarms.look(values(zeros=zeros, below=below), step=step, scaled=scaled)
    assert memory.tags == {}
    alarms.look(values(zeros=zeros, below=below), step=2 * RECORDS, scaled=scaled)
    assert say in memory.tags.get("alarms", "")
    assert bool(memory.tags) == bool(say)


def test_a_skipped_step_says_nothing_of_vanishing() -> None:
    memory = Memory()
    alarms = Alarms(memory)
    for step in range(9):
        alarms.look(values(zeros=1.0, nonfinite=3.0), step=step, scaled=True)
    assert memory.tags == {}


def test_a_network_whose_gradients_are_flushed_to_zero_raises_the_alarm() -> None:
    memory = Memory()
    train = TRAIN.model_copy(update={"precision": "fp16", "init_scale": 2.0**-40, "epochs": 1, "overflow_steps": 100})
    fit(tiny_dataset(), train, tracker=memory)
    assert "fallen to 1" in memory.tags["alarms"]
    assert "vanished gradients" in memory.tags["alarms"]
    assert min(memory.series("gradient/zero_share/lstm.l0")) == 1.0


def test_a_sound_training_raises_none() -> None:
    memory = Memory()
    fit(tiny_dataset(), TRAIN.model_copy(update={"precision": "fp16"}), tracker=memory)
    assert "alarms" not in memory.tags


def test_a_scale_that_is_set_too_high_is_no_sign_of_tiny_gradients() -> None:
    memory = Memory()
    Alarms(memory).look(values(scale=2.0**100, nonfinite=5.0), step=1, scaled=True)
    assert memory.tags == {}
