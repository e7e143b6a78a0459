"""In: commands killed, short of room, forbidden to write, told odd times. Out: nothing lost, the next run is right."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.ordeal.children import Ended, Zygote
from tests.ordeal.commands import COMMANDS, TRAIN, bars_of, damage, more_bars
from tests.small_market import MARKET, NETWORK

SOAK = os.environ.get("KLINEPRED_SOAK") == "1"
COUNT = int(os.environ.get("KLINEPRED_ORDEALS", "300"))
SEED = int(os.environ.get("KLINEPRED_SEED", "5"))
TRIED = tuple(COMMANDS)
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
CODES = {signal.SIGKILL: (-9,), signal.SIGTERM: (-15, 143), signal.SIGINT: (-2, 130)}
SIZES = (0, 1_000, 20_000, 50_000, 100_000, 200_000, 400_000, 800_000)

pytestmark = [
    pytest.mark.timeout(6 * 3600),
    pytest.mark.skipif(not SOAK, reason="in full counts: make soak"),  # single cases of each are all over the tests
    pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked off"),
]


@dataclass
class Stage:
    """A workspace with bars and a model, copied for each trial; what commands leave behind if nobody disturbs them."""

    zygote: Zygote
    base: Path
    bars: bytes
    calm: dict[str, tuple[Ended, Any]] = field(default_factory=dict)

    def copy(self, name: str, to: Path) -> Path:
        """Ready for a command."""
        space = to / "ein Raum № 2"
        shutil.rmtree(space, ignore_errors=True)
        shutil.copytree(self.base, space)
        COMMANDS[name].before(space)
        return space

    def undisturbed(self, name: str, to: Path) -> tuple[Ended, Any]:
        """How a command ends, and its outcome."""
        if name not in self.calm:
            space = self.copy(name, to)
            ended = self.zygote.run(COMMANDS[name].line(space))
            assert ended.code == 0, ended.err
            self.calm[name] = ended, COMMANDS[name].outcome(space, ended)
        return self.calm[name]

    def check(self, name: str, space: Path, *, again: bool = False) -> None:
        """What there is is whole, and now the command does what it would have done."""
        assert damage(space, bars=None if name == "ingest" else self.bars) == []
        ended = self.zygote.run(COMMANDS[name].line(space, again=again))
        assert ended.code == 0, f"{name}: {ended.err}"
        outcome = COMMANDS[name].outcome(space, ended)
        assert outcome == self.undisturbed(name, space.parent / "calm")[1], name
        assert damage(space, bars=None) == []


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("ordeal")
    base = folder / "base"
    base.mkdir()
    (base / "small.toml").write_text(MARKET + NETWORK + TRAIN, encoding="utf-8")
    (base / "first").touch()
    zygote = Zygote(folder)
    try:
        for command in ("ingest", "train"):
            ended = zygote.run([command, "-p", str(base / "small.toml"), "-w", str(base)])
            assert ended.code == 0, ended.err
        (model,) = (base / "models" / "trained").iterdir()
        (base / "first").write_text(model.name)
        more_bars(base)
        yield Stage(zygote, base, bars_of(base))
    finally:
        zygote.end()


def unfinished(space: Path, base: Path) -> bool:
    """Whether there is something to resume that the base has not."""

    def begun(root: Path) -> set[str]:
        files = [*(root / "mlruns" / "checkpoints").glob("*.pt"), *(root / "mlruns" / "tune").glob("*.db")]
        return {path.name for path in files}

    return begun(space) > begun(base)


def test_killed_at_any_moment_nothing_is_lost_and_the_next_run_does_the_same(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(SEED)  # noqa: S311
    falls: Counter[str] = Counter()
    for number in range(COUNT):
        name, blow = TRIED[number % len(TRIED)], SIGNALS[number % 3]
        calm, outcome = stage.undisturbed(name, tmp_path / "calm")
        space = stage.copy(name, tmp_path)
        delay = chance.uniform(0.0, calm.seconds * 1.05)
        fell = stage.zygote.run(COMMANDS[name].line(space), kill=(blow, delay))
        assert fell.clean, f"{name}, {blow.name} after {delay:.3f} s: {fell.err}"
        assert fell.code in (0, *CODES[blow]), f"{name}, {blow.name} after {delay:.3f} s: {fell}"
        falls[f"{name} {'ended' if fell.code == 0 else blow.name}"] += 1
        if fell.code == 0:
            assert COMMANDS[name].outcome(space, fell) == outcome
            continue
        stage.check(name, space, again=unfinished(space, stage.base))
        if name == "train":
            with contextlib.closing(sqlite3.connect(space / "mlruns" / "mlflow.db")) as store:
                assert store.execute("select count(*) from runs where status = 'RUNNING'").fetchone() == (0,)
    with capsys.disabled():
        print(f"\n{COUNT} kills: {dict(sorted(falls.items()))}")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_limit_of_file_sizes_is_one_message_and_the_next_run_is_right(
    name: str, stage: Stage, tmp_path: Path
) -> None:
    for size in SIZES:
        space = stage.copy(name, tmp_path)
        ended = stage.zygote.run(COMMANDS[name].line(space), bytes=size)
        assert ended.told or (ended.code in (0, 3) and ended.clean), f"{size} bytes: {ended}"
        stage.check(name, space, again=name == "tune" and unfinished(space, stage.base))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_workspace_that_is_read_only_is_read_or_one_message(name: str, stage: Stage, tmp_path: Path) -> None:
    space = stage.copy(name, tmp_path)
    entries = [space, *space.rglob("*")]
    try:
        for entry in entries:
            entry.chmod(0o500 if entry.is_dir() else 0o400)
        ended = stage.zygote.run(COMMANDS[name].line(space), powerless=True)
    finally:
        for entry in entries:
            entry.chmod(0o700 if entry.is_dir() else 0o600)
    assert ended.told or (ended.code in (0, 3) and ended.clean), ended
    assert sorted(space.rglob("*")) == sorted(entries[1:])
    assert damage(space, bars=stage.bars) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_clock_that_jumps_changes_no_result(name: str, stage: Stage, tmp_path: Path) -> None:
    for seed in range(10):
        space = stage.copy(name, tmp_path)
        ended = stage.zygote.run(COMMANDS[name].line(space), clock=seed)
        assert ended.code == 0, ended.err
        assert COMMANDS[name].outcome(space, ended) == stage.undisturbed(name, tmp_path / "calm")[1]
        assert damage(space, bars=None) == []
