"""In: a Ray cluster of three nodes on this machine. Out: claims that features are the same whoever is killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from klinepred.engine.on_ray import LOOPBACK
from tests.engine.clusters import ROOT, alone
from tests.small_market import small_space

pytestmark = [
    pytest.mark.timeout(900),
]

NODES = """
import re, sys, psutil
from contextlib import suppress
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
cluster.wait_for_nodes()
print(cluster.address, flush=True)

def works(node, word):
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    for child in raylet.children(recursive=True):
        with suppress(psutil.Error):  # gone meanwhile
            if re.search(word, " ".join(child.cmdline())):
                return True
    return False

for line in sys.stdin:
    node = next((node for node in nodes if works(node, line.strip())), nodes[-1])
    nodes.remove(node)
    cluster.remove_node(node, allow_graceful=False)
    print("done", flush=True)
cluster.shutdown()
"""


APPLY = r"ray::\S*apply"
"""How Ray calls a process that works on a piece."""


class Nodes:
    """Three machines, so to speak; two of them can be killed."""

    def __init__(self) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", NODES],
            cwd=ROOT,
            env={**clean, "PYTHONWARNINGS": "ignore", "RAY_USAGE_STATS_ENABLED": "0", LOOPBACK: "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.address = self._answer(lambda line: ":" in line)

    def kill_worker(self, word: str) -> bool:
        """Kill a process of theirs of such a name; whether there was one."""
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if re.search(word, " ".join(process.cmdline())):
                    process.kill()
                    return True
        return False

    def kill(self, word: str) -> None:
        """Kill a machine on which a process of such a name works, if there is one; else any."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        self._answer(lambda answer: answer == "done")

    def end(self) -> None:
        """Kill all."""
        self._process.communicate(timeout=120.0)

    def _answer(self, wanted: Callable[[str], bool]) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if wanted(line.strip()):
                return line.strip()
        raise AssertionError("the cluster has ended")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    cluster = Nodes()
    yield cluster
    cluster.end()


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_space(tmp_path_factory.mktemp("space"))


def driver(words: list[str], nodes: Nodes) -> subprocess.Popen[str]:
    """A command of klinepred at work on the cluster."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env={**clean, "PYTHONWARNINGS": "ignore", "RAY_ADDRESS": nodes.address, LOOPBACK: "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(what: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Return as soon as it is so."""
    until = time.monotonic() + 300.0
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)


def kept(space: Path) -> dict[str, bytes]:
    folder = space / "data" / "features"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.arrow")}


def test_features_are_the_same_though_driver_worker_and_machine_are_killed(space: Path, nodes: Nodes) -> None:
    words = ["-m", "klinepred", "features", "build", "-p", str(space / "small.toml"), "-w", str(space)]
    words += ["--format", "csv"]
    whole = alone(*words)
    wanted = kept(space)
    for path in (space / "data" / "features").rglob("*.arrow"):
        path.unlink()

    first = driver([*words, "--engine", "ray"], nodes)
    wait_for(lambda: bool(kept(space)), first)
    first.kill()
    first.communicate()
    done = kept(space)
    assert 0 < len(done) < len(wanted)

    second = driver([*words, "--engine", "ray"], nodes)
    wait_for(lambda: nodes.kill_worker(APPLY), second)
    nodes.kill(APPLY)
    out, err = second.communicate(timeout=300.0)
    assert second.returncode == 0, err
    assert kept(space) == wanted
    names, values = (line.split(",") for line in out.splitlines()[-2:])  # Ray's own core may speak of lost machines
    again = dict(zip(names, values, strict=True))
    before = dict(zip(*(line.split(",") for line in whole.stdout.splitlines()), strict=True))
    assert int(again.pop("computed")) < int(before.pop("computed"))  # what the killed driver had was kept
    assert again == before
