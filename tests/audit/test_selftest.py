"""In: leaks planted on purpose. Out: the audit's checks catch every one of them, and nothing else."""

from __future__ import annotations

import pytest

from klinepred.audit import selftest
from klinepred.audit.check import Certificate, Check
from klinepred.audit.leaky_datasets import LEAKY_DATASETS
from klinepred.audit.leaky_doors import PACKAGE, SQL
from klinepred.audit.leaky_features import LEAKY_FEATURES, SIDE_TABLE
from klinepred.audit.leaky_models import LEAKY_PREDICTIONS, LEAKY_TRAINING

DOORS = [*(f"SQL: {name}" for name in SQL), *(f"package: {name}" for name in PACKAGE)]
LEAKS = [*LEAKY_FEATURES, SIDE_TABLE, *LEAKY_DATASETS, *LEAKY_TRAINING, *LEAKY_PREDICTIONS, *DOORS]


@pytest.fixture(scope="module")
def outcome() -> dict[str, Check]:
    return {check.name: check for check in selftest.self_test().checks}


@pytest.mark.parametrize("leak", LEAKS)
def test_a_planted_leak_is_caught(outcome: dict[str, Check], leak: str) -> None:
    assert outcome[leak].kind == "leak"
    assert outcome[leak].passed, outcome[leak].detail


def test_what_is_sound_raises_no_alarm(outcome: dict[str, Check]) -> None:
    controls = [check for check in outcome.values() if check.kind == "control"]
    assert len(controls) == 2
    assert [check.detail for check in controls if not check.passed] == []


def test_every_leak_has_a_check_and_no_check_is_left_over(outcome: dict[str, Check]) -> None:
    assert len(LEAKS) == len(set(LEAKS)) >= 40
    assert sorted(name for name, check in outcome.items() if check.kind == "leak") == sorted(LEAKS)


@pytest.mark.parametrize(
    ("leak", "caught_by"),
    [
        ("return of the next bar, shift(-1)", "future cut off"),
        ("balance of volume since the first bar, unbounded lookback", "later start"),
        ("cross-section over all that is stored", "strangers in the store"),
        (SIDE_TABLE, "copy of the target"),
        ("label across a gap", "a target over a bar that is not there"),
        ("forward-filled bars as rows", "a row where no bar is stored"),
        ("unit of volatility with the target's own step in it", "known at the close of t"),
        ("random split of rows", "end before the next part begins"),
        ("embargo forgotten", "a label in the embargo"),
        ("scaler on all rows", "those of the train rows alone"),
        ("masked inputs filled with the next known value", "is masked, yet filled"),
        ("windows across symbols", "two symbols in one sequence"),
        ("windows that end after their label's row", "two sequences predict"),
        ("validation rows used for the calibration", "labels outside the calibration part"),
        ("predicts with one bar too many", "does not change with bars after t"),
        ("a network that reads both ways", "reads a sequence forward only"),
    ],
)
def test_the_check_that_is_meant_for_it_speaks(outcome: dict[str, Check], leak: str, caught_by: str) -> None:
    assert caught_by in outcome[leak].detail


def test_a_leak_that_goes_unnoticed_fails_the_self_test() -> None:
    sound = [Check("a", "feature", True, ""), Check("b", "target", True, "")]
    missed = selftest._caught("some leak", sound)
    assert not missed.passed
    assert not Certificate((missed,)).passed
