"""In: right inputs damaged by chance, and former faults. Out: each is taken, or refused in three parts."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.chance import damaged
from tests.fuzz.targets import TARGETS, FaultError, _asked, right_inputs

SOAK = os.environ.get("KLINEPRED_SOAK") == "1"
COUNT = int(os.environ.get("KLINEPRED_FUZZ", "170000" if SOAK else "120"))
SEED = int(os.environ.get("KLINEPRED_SEED", "11"))
CORPUS = Path(__file__).parent / "corpus"


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(6 * 3600 if SOAK else 300)
@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs_are_taken_or_refused_in_three_parts(name: str, tmp_path: Path) -> None:
    run, rights = TARGETS[name](tmp_path), right_inputs(name, tmp_path)
    for right in rights:
        run(right)
    for number in range(min(COUNT, 2000)):
        data = damaged(rights[number % len(rights)], SEED * 1_000_003 + number)
        try:
            run(data)
        except Exception as error:
            (tmp_path / "fault").write_bytes(data)
            raise AssertionError(
                f"input {number} of {name}: {type(error).__name__}: {error}; {data[:300]!r}"
            ) from error


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_a_fault_once_is_none_now(path: Path, tmp_path: Path) -> None:
    TARGETS[path.parent.name](tmp_path)(path.read_bytes())


def test_the_judge_sees_a_traceback_and_a_message_without_its_parts() -> None:
    from klinepred.errors import UsageError

    with pytest.raises(ZeroDivisionError):
        _asked(lambda: 1 // 0)

    def silent() -> None:
        raise UsageError("x", expected="", got="y", do="z")

    with pytest.raises(FaultError, match="without its parts"):
        _asked(silent)


def test_chance_is_the_same_each_time_and_does_damage() -> None:
    right = b'{"a": 1, "b": [2.5, "x"]}'
    made = [damaged(right, seed) for seed in range(200)]
    assert made == [damaged(right, seed) for seed in range(200)]
    assert len(set(made)) > 150


@pytest.mark.skipif(not SOAK, reason="in full counts: make soak")
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("name", TARGETS)
def test_inputs_that_follow_the_lines_reached_are_taken_or_refused(name: str, tmp_path: Path) -> None:
    assert importlib.util.find_spec("atheris"), "make soak installs it"
    words = [sys.executable, "-m", "tests.fuzz.guided", name, "--inputs", str(COUNT), "--seed", str(SEED)]
    done = subprocess.run([*words, "--found", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
