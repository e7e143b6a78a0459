"""In: ingests, deletes, restores of one workspace at once. Out: a store as if they had come one after another."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from klinepred.paths import Workspace
from tests.bars.kills.children import go, start
from tests.bars.kills.deeds import DEEDS, State, make_files, state_of

SOAK = os.environ.get("KLINEPRED_SOAK") == "1"
ROUNDS = int(os.environ.get("KLINEPRED_ROUNDS", "50" if SOAK else "1"))
TOGETHER = (
    ("fresh", "fresh"),
    ("new", "revised"),
    ("revised", "delete"),
    ("several", "restore", "new"),
    ("compact", "revised", "revised"),
    ("new", "revised") * 4,
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("market")
    make_files(folder, days=45)
    return folder


def _in_turn(deeds: Sequence[str], files: Path, spot: Path) -> State:
    if deeds[0] != "fresh":
        shutil.copytree(files / "base", spot)
    for deed in deeds:
        DEEDS[deed](Workspace(spot), files)
    return state_of(Workspace(spot))


@pytest.mark.timeout(2 * 3600 if SOAK else 300)
@pytest.mark.parametrize("deeds", TOGETHER if SOAK else TOGETHER[:3], ids="+".join)
def test_at_once_is_as_one_after_another(files: Path, tmp_path: Path, deeds: tuple[str, ...]) -> None:
    orders = [
        _in_turn(order, files, tmp_path / f"turn{number}")
        for number, order in enumerate(dict.fromkeys(itertools.permutations(deeds)))
    ]
    for number in range(max(ROUNDS // len(TOGETHER), 1)):
        spot = tmp_path / f"round{number}"
        if deeds[0] != "fresh":
            shutil.copytree(files / "base", spot)
        children = [start(deed, spot, files) for deed in deeds]
        for child in children:
            go(child)
        said = [child.communicate()[1] for child in children]
        assert [child.returncode for child in children] == [0] * len(deeds), said
        left = state_of(Workspace(spot))
        keys = left.bars.select("symbol", "ts")
        assert keys.n_unique() == keys.height
        assert any(left.same(other) for other in orders)
        shutil.rmtree(spot)
