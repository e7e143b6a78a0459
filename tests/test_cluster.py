"""In: a small market, a Ray cluster on this machine. Out: claims that Ray Train trains what torchrun trains."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from klinepred.model.bundle import WEIGHTS
from tests.engine.clusters import alone
from tests.small_market import small_space, train_words
from tests.training.ranked import together

ROOT = Path(__file__).parents[1]
TOO_EARLY = ("--set", "dataset.split.train_end=2019-01-01", "--set", "dataset.split.validation_end=2019-02-01")


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_space(tmp_path_factory.mktemp("wörk space"), train="epochs = 8\n")


def kill_a_worker(space: Path) -> bool:
    """Kill one of Ray's training workers once a checkpoint is there; whether there was one."""
    before = set((space / "mlruns" / "checkpoints").glob("*.pt"))
    until = time.monotonic() + 400.0
    while time.monotonic() < until:
        if set((space / "mlruns" / "checkpoints").glob("*.pt")) - before:
            for entry in Path("/proc").iterdir():
                with suppress(OSError):
                    if entry.name.isdigit() and b"TrainWorker" in (entry / "cmdline").read_bytes():
                        os.kill(int(entry.name), signal.SIGKILL)
                        return True
        time.sleep(0.05)
    return False


@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for the process to kill in /proc")
def test_ray_trains_what_torchrun_trains_though_a_worker_is_killed(space: Path) -> None:
    first, second = together(train_words(space), world=2, cwd=ROOT)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    (wanted,) = (space / "models" / "trained").glob("small-*")
    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_a_worker, space)
        done = alone(*train_words(space, "--engine", "ray", "--num-workers", "2"), wait_s=550.0)
        assert killing.result(), done.stderr
    assert done.returncode == 0, done.stderr
    assert "epoch 8/8" in done.stderr
    assert "a process was lost and all were started again" in done.stderr
    assert done.stdout.startswith("model small-")
    name = done.stdout.split()[1]
    found = space / "models" / "trained" / name / WEIGHTS
    assert name != wanted.name
    assert found.read_bytes() == (wanted / WEIGHTS).read_bytes()


def test_more_workers_than_cores_are_refused(space: Path) -> None:
    done = alone(*train_words(space, "--engine", "ray", "--num-workers", "99999"))
    assert done.returncode == 2
    assert "expected: a cluster of at least 99999 cores" in done.stderr


def test_an_error_in_the_workers_is_told_once_and_not_tried_again(space: Path) -> None:
    done = alone(*train_words(space, "--engine", "ray", *TOO_EARLY))
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("expected:") == 1
    assert "Traceback" not in done.stderr


def test_options_of_ray_without_ray_are_said_to_be_ignored(space: Path) -> None:
    done = alone(*train_words(space, "--num-workers", "2", "--epochs", "1", "--set", "train.batch=512"))
    assert done.returncode == 0, done.stderr
    assert "--num-workers is ignored without --engine ray" in done.stderr
