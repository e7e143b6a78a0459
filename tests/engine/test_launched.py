"""In: environments that no launcher would set. Out: claims that each ends in a message, whatever reads it first."""

from __future__ import annotations

from pathlib import Path

import pytest

from klinepred.engine.launched import LOCAL, PORT, RANK, RESTARTS, WORLD, rank, refuse_several, world_size
from klinepred.errors import UsageError
from klinepred.training.ranks import joined, restarted
from tests.conftest import Typed

FULL = {WORLD: "2", RANK: "1", LOCAL: "1", "MASTER_ADDR": "127.0.0.1", PORT: "29500"}


def launch(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    for name in (*FULL, RESTARTS):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


def test_without_a_launcher_there_is_one_process_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch)
    assert (world_size(), rank()) == (1, 0)
    launch(monkeypatch, WORLD_SIZE="")
    assert world_size() == 1
    launch(monkeypatch, WORLD_SIZE="1", RANK="whatever a scheduler left there")
    assert rank() == 0
    refuse_several("this", do="that")


def test_what_the_launcher_says_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, WORLD_SIZE=" 16 ", RANK="15")
    assert (world_size(), rank()) == (16, 15)
    with pytest.raises(UsageError, match="this") as caught:
        refuse_several("this", do="that")
    assert "16" in caught.value.got


@pytest.mark.parametrize("text", ["two", "2.0", "-2", "0", "1e1", "٢", "2,"])
@pytest.mark.parametrize(
    "command",
    [
        ("train", "-p", "demo"),
        ("train", "-p", "demo", "--set", "dataset.split.folds=2"),
        ("run", "-p", "demo", "--if-drifted"),
    ],
)
def test_a_world_size_that_is_no_number_ends_every_command_in_three_parts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, typed: Typed, text: str, command: tuple[str, ...]
) -> None:
    launch(monkeypatch, WORLD_SIZE=text)
    code, out, err = typed(*command, "-w", str(tmp_path))
    assert (code, out) == (2, "")
    assert "environment variable WORLD_SIZE" in err
    assert f"got:      {text!r}" in err
    assert "unset WORLD_SIZE" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (RANK, "first", "from 0 to 1"),
        (RANK, "2", "from 0 to 1"),
        (LOCAL, "gpu0", "from 0 on"),
        (PORT, "70000", "from 1 to 65535"),
        (PORT, "29500:1", "from 1 to 65535"),
        (RESTARTS, "once", "from 0 on"),
    ],
)
def test_the_other_numbers_of_a_launcher_are_checked_before_anybody_waits(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, expected: str
) -> None:
    launch(monkeypatch, **{**FULL, name: text})
    with pytest.raises(UsageError, match=name) as caught, joined():
        pass
    assert caught.value.expected.endswith(expected)


def test_a_count_of_restarts_that_is_no_number_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, TORCHELASTIC_RESTART_COUNT="x")
    with pytest.raises(UsageError, match=RESTARTS):
        restarted()
