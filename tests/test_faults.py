"""In: a Ray cluster of three nodes on this machine. Out: the same features and model, whoever is killed."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from klinepred.engine.on_ray import LOOPBACK
from klinepred.model.bundle import WEIGHTS
from tests.engine.clusters import ROOT, alone
from tests.small_market import small_space, train_words
from tests.training.ranked import together

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
    if line.strip() == "add":
        nodes.append(cluster.add_node(num_cpus=1))
        cluster.wait_for_nodes()
        print("done", flush=True)
        continue
    node = next((node for node in nodes if works(node, line.strip())), nodes[-1])
    nodes.remove(node)
    cluster.remove_node(node, allow_graceful=False)
    print("done", flush=True)
cluster.shutdown()
"""


APPLY = r"ray::\S*apply"
"""How Ray calls a process that works on a piece."""
EVEN = {"RAY_worker_niceness": "0"}
"""Workers of Ray that do not wait for all other programs."""
TRAINS = "TrainWorker"
"""And one that trains."""


class Nodes:
    """Three machines, so to speak; two of them can be killed."""

    def __init__(self) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", NODES],
            cwd=ROOT,
            env={**clean, **EVEN, "PYTHONWARNINGS": "ignore", "RAY_USAGE_STATS_ENABLED": "0", LOOPBACK: "0"},
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
        self._order(word)

    def add(self) -> None:
        """One more machine."""
        self._order("add")

    def _order(self, word: str) -> None:
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
    return small_space(tmp_path_factory.mktemp("space"), train="epochs = 12\n")


def driver(words: list[str], nodes: Nodes, **more: str) -> subprocess.Popen[str]:
    """A command of klinepred at work on the cluster."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env={**clean, "PYTHONWARNINGS": "ignore", "RAY_ADDRESS": nodes.address, LOOPBACK: "0", **more},
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
    names, values = (line.split(",") for line in out.splitlines())
    again = dict(zip(names, values, strict=True))
    before = dict(zip(*(line.split(",") for line in whole.stdout.splitlines()), strict=True))
    assert int(again.pop("computed")) < int(before.pop("computed"))  # what the killed driver had was kept
    assert again == before


def saved(space: Path) -> int:
    """When a checkpoint was written last; 0 before the first."""
    return max((path.stat().st_mtime_ns for path in (space / "mlruns" / "checkpoints").glob("*.pt")), default=0)


def test_a_training_ends_with_the_same_model_though_driver_worker_and_machine_are_killed(
    space: Path, nodes: Nodes
) -> None:
    """The runs go where the driver says, by its credentials; the machines of the cluster have not been told."""
    ended = together(train_words(space), world=2, cwd=ROOT)
    assert [one.code for one in ended] == [0, 0], ended[0].err
    (wanted,) = (space / "models" / "trained").glob("small-*")
    for path in (space / "mlruns" / "checkpoints").glob("*.pt"):
        path.unlink()
    nodes.add()
    record = {"MLFLOW_TRACKING_URI": f"sqlite:///{space / 'elsewhere.db'}", "MLFLOW_TRACKING_TOKEN": "open sesame"}
    words = [*train_words(space), "--engine", "ray", "--num-workers", "2"]

    first = driver(words, nodes, **record)
    wait_for(lambda: saved(space) > 0, first)
    first.kill()
    first.communicate()

    before = saved(space)
    second = driver([*words, "--resume", "last"], nodes, **record)
    wait_for(lambda: saved(space) > before, second)
    wait_for(lambda: nodes.kill_worker(TRAINS), second)
    before = saved(space)
    wait_for(lambda: saved(space) > before, second)
    nodes.kill(TRAINS)
    out, err = second.communicate(timeout=300.0)
    assert second.returncode == 0, err
    # one where the process that was left saved once more, and the machine fell into the same restart
    assert err.count("a process was lost and all were started again") in (1, 2), err
    said = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert (space / "models" / "trained" / said["model"] / WEIGHTS).read_bytes() == (wanted / WEIGHTS).read_bytes()
    with closing(sqlite3.connect(space / "elsewhere.db")) as store:
        states = dict(store.execute("select run_uuid, status from runs").fetchall())
        assert states == {said["run"]: "FINISHED"}
        assert not any("open sesame" in line for line in store.iterdump())
    assert "open sesame" not in out + err
