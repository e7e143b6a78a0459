"""In: settings. Out: the learning rate of every step, against hand-made numbers."""

from __future__ import annotations

import math

import pytest

from klinepred.settings import TrainSettings
from klinepred.training.schedule import learning_rate


def rates(train: TrainSettings, planned: int) -> list[float]:
    return [learning_rate(step, planned=planned, train=train) for step in range(planned)]


def test_constant_stays() -> None:
    assert set(rates(TrainSettings(schedule="constant", lr=1e-4), 50)) == {1e-4}


def test_cosine_rises_over_its_warm_up_then_falls_to_zero() -> None:
    train = TrainSettings(schedule="cosine", lr=2.0, warmup=0.2)
    got = rates(train, 10)
    assert got[:2] == [1.0, 2.0]
    by_hand = [2.0 * 0.5 * (1 + math.cos(math.pi * k / 8)) for k in range(8)]
    assert got[2:] == pytest.approx(by_hand)
    assert learning_rate(10, planned=10, train=train) == pytest.approx(0.0)
    assert learning_rate(99, planned=10, train=train) == pytest.approx(0.0)


def test_without_warm_up_the_first_step_has_the_full_rate() -> None:
    assert rates(TrainSettings(schedule="cosine", lr=1.0, warmup=0.0), 4)[0] == 1.0


def test_every_planned_step_has_a_rate_above_zero() -> None:
    for planned in (1, 2, 3, 7, 100):
        assert min(rates(TrainSettings(schedule="cosine", warmup=0.1), planned)) > 0.0
