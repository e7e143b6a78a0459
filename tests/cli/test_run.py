"""In: ends of scheduled rounds. Out: one line on stdout and the exit code that belongs to each."""

from __future__ import annotations

from pathlib import Path

import pytest

from klinepred.pipeline.rounds import Round, Word
from klinepred.training.signals import TrainingStopped, TrainingTerminated
from tests.conftest import Typed


@pytest.mark.parametrize(
    ("word", "partly", "plain", "telling"),
    [
        ("promoted", False, 0, 0),
        ("nothing new", False, 0, 10),
        ("not drifted", False, 0, 11),
        ("kept", False, 0, 12),
        ("kept", True, 3, 3),
        ("promoted", True, 3, 3),
        ("failed", False, 1, 1),
        ("failed", True, 1, 1),
        ("busy", False, 4, 4),
    ],
)
def test_each_end_of_a_round_has_its_line_and_exit_code(
    word: Word, partly: bool, plain: int, telling: int, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = Round(word, "a sentence\n  over two lines", "train", partly=partly)
    monkeypatch.setattr("klinepred.pipeline.run_round", lambda *_, **__: ended)
    line = ["run", "-p", "demo", "-w", str(tmp_path), "--if-drifted"]
    assert typed(*line)[:2] == (plain, f"{word}: a sentence over two lines\n")
    assert typed(*line, "--exit-code")[:2] == (telling, f"{word}: a sentence over two lines\n")


@pytest.mark.parametrize(("kind", "code"), [(TrainingStopped, 130), (TrainingTerminated, 143)])
def test_a_round_stopped_by_a_signal_says_that_the_next_one_goes_on(
    kind: type[TrainingStopped], code: int, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise kind("training stopped", expected="the end", got="a stop", do="go on")

    monkeypatch.setattr("klinepred.pipeline.run_round", stopped)
    found, out, _ = typed("run", "-p", "demo", "-w", str(tmp_path), "--scheduled")
    assert (found, out) == (code, "stopped: at train; the next round goes on from the checkpoint\n")
