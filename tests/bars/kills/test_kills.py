"""In: ingests and upkeep killed at random moments. Out: a second run gives the store of an undisturbed one."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from klinepred.paths import Workspace
from tests.bars.kills.children import kill, time_of
from tests.bars.kills.deeds import DEEDS, FROM_NOTHING, IN_STEPS, State, make_files, state_of

SOAK = os.environ.get("KLINEPRED_SOAK") == "1"
COUNT = int(os.environ.get("KLINEPRED_KILLS", "200" if SOAK else "6"))
TRIED = tuple(DEEDS) if SOAK else ("fresh", "revised", "split", "delete", "restore", "compact")


def _begin(deed: str, folder: Path, space: Path) -> State:
    if deed not in FROM_NOTHING:
        shutil.copytree(folder / "base", space)
    return state_of(Workspace(space))


@pytest.mark.timeout(3 * 3600 if SOAK else 300)
def test_killed_at_any_moment_a_second_run_stores_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_files(tmp_path, days=150 if SOAK else 45)
    chance = random.Random(5)  # noqa: S311
    calm: dict[str, State] = {}
    times = {}
    falls: Counter[str] = Counter()
    for deed in TRIED:
        _begin(deed, tmp_path, tmp_path / f"calm-{deed}")
        times[deed] = time_of(deed, tmp_path / f"calm-{deed}", tmp_path)
        calm[deed] = state_of(Workspace(tmp_path / f"calm-{deed}"))
    aim = 0.7
    for number in range(COUNT):
        deed = TRIED[number % len(TRIED)]
        spot = tmp_path / "space"
        before = _begin(deed, tmp_path, spot)
        its = times[deed]
        anywhere = number % 5 == 4
        delay = chance.uniform(0.0, its.end if anywhere else max(its.commit - its.first, 0.002) * aim)
        fell = kill(deed, spot, tmp_path, after_first=not anywhere, delay=delay)
        falls["amid" if fell.amid else "after the commit" if fell.committed else "before the first byte"] += 1
        if not anywhere:
            aim *= 1.05 if fell.amid else 0.8  # a busy machine: keep most of them inside
        space = Workspace(spot)
        left = state_of(space)
        if deed not in IN_STEPS:
            assert any(left.bars.equals(other.bars) for other in (before, calm[deed])), f"{deed}: half of it is stored"
        if deed == "compact":
            assert left.bars.equals(before.bars)
        DEEDS[deed](space, tmp_path)
        assert state_of(space).same(calm[deed]), f"{deed}: not the store of an undisturbed run"
        shutil.rmtree(spot)
    if SOAK:
        with capsys.disabled():
            print(f"\n{COUNT} kills ({', '.join(TRIED)}): {dict(falls)}")
    least = COUNT / 2 if SOAK else COUNT / 3  # a handful falls where chance and a busy machine will
    assert falls["amid"] >= least, f"too few kills fell between the first byte and the commit: {falls}"
