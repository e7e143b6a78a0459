"""In: made-up losses. Out: claims on what a study tries, what it prunes, and what an interruption changes: nothing."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from klinepred.errors import TrainingError, UsageError
from klinepred.settings.search import Plain, parse_axis
from klinepred.tuning.study import RANDOM, Study, Tried, best_first

AXES = [parse_axis(line) for line in ("train.lr=1e-4..1e-1|log", "train.batch=8,16,32", "model.hidden=8..64")]
FIRST: dict[str, Plain] = {"train.lr": 1e-3, "train.batch": 16, "model.hidden": 32}


def begun(place: Path, *, trials: int = 12, **about: Any) -> Study:
    table = {"trials": trials, "seed": 7, "pruner": "none", "grace": 1, **about}
    return Study.begin(place, axes=AXES, about=table, first=FIRST)


def loss_of(values: dict[str, Plain]) -> float:
    return abs(float(values["train.lr"]) - 0.01) + float(values["model.hidden"]) / 1000.0


def run_all(study: Study) -> list[Tried]:
    while (one := study.next()) is not None:
        study.close(Tried(one.number, one.values, "complete", loss_of(one.values)))
    return study.rows()


def test_an_interruption_changes_nothing_of_what_is_tried(tmp_path: Path) -> None:
    whole = run_all(begun(tmp_path / "{whole} ü.db"))
    assert len(whole) == 12 > RANDOM
    assert whole[0].values == FIRST
    assert len({row.values["train.lr"] for row in whole}) == 12
    study = begun(tmp_path / "cut.db")
    for _ in range(11):
        one = study.next()
        assert one is not None
        study.close(Tried(one.number, one.values, "complete", loss_of(one.values)))
        study = Study(tmp_path / "cut.db")
    study.next()
    again = Study(tmp_path / "cut.db")
    assert again.left() == 1
    assert [row.outcome for row in again.rows()].count("open") == 1
    assert run_all(again) == whole
    assert again.next() is None


def test_more_trials_are_added_to_a_finished_study(tmp_path: Path) -> None:
    study = begun(tmp_path / "a.db", trials=3)
    few = run_all(study)
    study.keep(trials=5)
    more = run_all(Study(tmp_path / "a.db"))
    assert (len(few), len(more)) == (3, 5)
    assert more[:3] == few


def test_a_trial_above_the_median_of_four_others_is_pruned_after_its_grace(tmp_path: Path) -> None:
    study = begun(tmp_path / "a.db", trials=6, pruner="median", grace=2)
    for base in (1.0, 2.0, 3.0, 4.0):
        one = study.next()
        assert one is not None
        assert [study.heard(one.number, epoch, base - 0.1 * epoch) for epoch in (1, 2, 3)] == [False] * 3
        study.close(Tried(one.number, one.values, "complete", base - 0.3))
    above, below = study.next(), study.next(busy=[5])
    assert above is not None
    assert below is not None
    # at epoch 2 the four had 0.8, 1.8, 2.8 and 3.8: a median of 2.3
    assert not study.heard(above.number, 1, 9.0)
    assert study.heard(above.number, 2, 2.31)
    assert not study.heard(below.number, 1, 9.0)
    assert not study.heard(below.number, 2, 2.29)
    study.close(Tried(above.number, above.values, "pruned", run_id="run-5"))
    study.close(Tried(below.number, below.values, "failed", note="why"))
    rows = study.rows()
    assert [row.outcome for row in rows] == [*["complete"] * 4, "pruned", "failed"]
    assert [row.loss for row in rows] == pytest.approx([0.7, 1.7, 2.7, 3.7, 2.31, 2.29])
    assert (rows[4].run_id, rows[5].note, rows[4].epochs) == ("run-5", "why", 2)
    assert [row.number for row in best_first(rows)] == [1, 2, 3, 4, 5, 6]


def test_a_loss_that_is_heard_twice_stays_as_it_was_first(tmp_path: Path) -> None:
    study = begun(tmp_path / "a.db", trials=1)
    one = study.next()
    assert one is not None
    study.heard(1, 1, 0.5)
    again = Study(tmp_path / "a.db")
    again.heard(1, 1, 0.4)
    assert again.rows()[0].loss == 0.5


def test_two_at_once_are_two_configurations(tmp_path: Path) -> None:
    study = begun(tmp_path / "a.db", trials=2)
    one = study.next(busy=[])
    two = study.next(busy=[1])
    assert one is not None
    assert two is not None
    assert (one.number, two.number) == (1, 2)
    assert study.next(busy=[1, 2]) is None


def test_what_is_no_study_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_bytes(b"not a database at all, but long enough to be looked at")
    for name in ("bad.db", "none.db"):
        with pytest.raises(TrainingError, match="study"):
            Study(tmp_path / name)


def test_without_optuna_one_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def fake(name: str, *rest: Any) -> Any:
        if name == "optuna":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", fake)
    with pytest.raises(UsageError) as said:
        Study(tmp_path / "a.db")
    assert "klinepred[ray]" in said.value.do
