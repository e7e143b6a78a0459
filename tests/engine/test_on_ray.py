"""In: small clusters of Ray on this machine. Out: claims that who computes changes nothing, though workers die."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from klinepred.engine.engine import HERE
from tests.engine.clusters import alone
from tests.small_market import small_space

KILLED = """
import os, signal, sys, time
from pathlib import Path
from ray.cluster_utils import Cluster
from klinepred.engine.on_ray import ray_cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
nodes = [cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]
os.environ["RAY_ADDRESS"] = cluster.address
place = Path(sys.argv[1])

def work(number):
    mark = place / f"{number}"
    first = not mark.exists()
    mark.touch()
    if number == 3 and first:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    return number * number

got = []
with ray_cluster() as engine:
    assert engine.workers == 3
    for value in engine.map(work, range(24)):
        got.append(value)
        if len(got) == 4:
            cluster.remove_node(nodes[0], allow_graceful=False)
assert got == [number * number for number in range(24)], got
print("as it should be")
"""

FAILS = """
import os
from klinepred.engine.on_ray import ray_cluster
from klinepred.errors import FeatureError

def work(number):
    if number == 2:
        raise FeatureError("bars", expected="two", got="one", do="that")
    return number

seen = []
try:
    with ray_cluster(workers=1) as engine:
        os.write(1, b"a word of Ray's core")
        for value in engine.map(work, range(5)):
            seen.append(value)
except FeatureError as error:
    print(seen, error.got)
"""


SPREAD = """
import os, signal, sys
from pathlib import Path
from klinepred.engine.on_ray import ray_cluster
from klinepred.errors import FeatureError

mark = Path(sys.argv[1]) / "killed"

def work(number):
    for part in range(3):
        if (number, part) == (1, 2) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield number, part, os.getcwd()

def feed():
    yield from range(3)
    raise FeatureError("feed", expected="more", got="no more", do="that")

seen = []
try:
    with ray_cluster(workers=2) as engine:
        for value in engine.spread(work, feed()):
            seen.append(value)
except FeatureError as error:
    assert mark.exists()
    assert seen == [(number, part, os.getcwd()) for number in range(3) for part in range(3)], seen
    print(error.got)
"""


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_space(tmp_path_factory.mktemp("wörk space"))


def kept(space: Path) -> dict[str, str]:
    folder = space / "data" / "features"
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*.arrow")
    }


def test_features_built_by_ray_are_those_built_here_bit_for_bit(space: Path) -> None:
    words = ["features", "build", "-p", str(space / "small.toml"), "-w", str(space), "--format", "csv"]
    by_ray = alone("-m", "klinepred", *words, "--engine", "ray", "--num-workers", "2")
    assert by_ray.returncode == 0, by_ray.stderr
    found = kept(space)
    assert by_ray.stdout.splitlines()[1].startswith("6,28548,28548,50,")
    for path in (space / "data" / "features").rglob("*.arrow"):
        path.unlink()
    here = alone("-m", "klinepred", *words)
    assert here.stdout == by_ray.stdout
    assert kept(space) == found


def test_a_killed_worker_and_a_killed_machine_change_nothing(tmp_path: Path) -> None:
    done = alone("-c", KILLED, str(tmp_path))
    assert done.stdout.splitlines()[-1:] == ["as it should be"], done.stderr


LISTENS = """
import ray, psutil
from klinepred.engine.on_ray import ray_cluster

with ray_cluster(workers=1) as engine:
    mine = [process.pid for process in psutil.Process().children(recursive=True)]
    sockets = [one for one in psutil.net_connections("tcp") if one.status == "LISTEN" and one.pid in mine]
    print(len(sockets) > 2, sorted({one.laddr.ip for one in sockets}))
"""


def test_what_ray_starts_here_listens_on_the_loopback_alone() -> None:
    done = alone("-c", LISTENS)
    assert done.stderr.splitlines()[-1:] in (["True ['127.0.0.1']"], ["True ['127.0.0.1', '::ffff:127.0.0.1']"])


def test_what_a_killed_worker_had_yielded_comes_once_and_before_what_ended_the_feed(tmp_path: Path) -> None:
    done = alone("-c", SPREAD, str(tmp_path))
    assert done.stdout.splitlines()[-1:] == ["no more"], done.stderr


def test_an_error_of_ours_comes_through_as_itself_and_stdout_is_ours_alone() -> None:
    done = alone("-c", FAILS)
    assert done.stdout == "[0, 1] one\n", done.stderr
    assert "a word of Ray's core" in done.stderr


def test_a_cluster_that_does_not_answer_is_named() -> None:
    words = ["features", "build", "-p", "demo", "-w", "/nowhere", "--engine", "ray"]
    done = alone("-m", "klinepred", *words, RAY_ADDRESS="not an address")
    assert done.returncode == 2, done.stderr
    assert "RAY_ADDRESS=not an address" in done.stderr
    assert "ray start --head" in done.stderr


def test_here_is_one_thing_after_another_in_order() -> None:
    seen: list[int] = []

    def work(number: int) -> int:
        seen.append(number)
        return -number

    results = HERE.map(work, [3, 1, 2])
    assert next(results) == -3
    assert seen == [3]
    assert list(results) == [-1, -2]


def test_here_asks_for_a_result_when_the_one_before_has_been_used() -> None:
    asked: list[str] = []

    def work(word: str) -> Iterator[str]:
        for sign in word:
            asked.append(sign)
            yield sign

    results = HERE.spread(work, ["ab", "c"])
    assert next(results) == "a"
    assert asked == ["a"]
    assert list(results) == ["b", "c"]
