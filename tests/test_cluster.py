"""In: a small market, a Ray cluster on this machine. Out: claims that Ray Train trains what one process does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from klinepred.model.bundle import WEIGHTS
from tests.conftest import Typed
from tests.engine.clusters import alone
from tests.shallow import shallow_audit
from tests.small_market import small_space, train_words

TOO_EARLY = ("--set", "dataset.split.train_end=2019-01-01", "--set", "dataset.split.validation_end=2019-02-01")


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_space(tmp_path_factory.mktemp("wörk space"), train="epochs = 2\n")


def models(space: Path, out: str) -> list[dict[str, np.ndarray]]:
    """Weights of the models of the folds that the command named."""
    names = [line.split()[3] for line in out.splitlines() if line.startswith("fold ")]
    return [load_file(space / "models" / "trained" / name / WEIGHTS) for name in names]


def test_a_walk_forward_of_two_workers_is_that_of_one_process_with_the_doubled_batch(space: Path) -> None:
    words = [*train_words(space), "--set", "dataset.split.folds=2", "--set", "model.dropout=0"]
    one = alone(*words, "--set", "train.batch=32")
    two = alone(*words, "--engine", "ray", "--num-workers", "2")
    assert (one.returncode, two.returncode) == (0, 0), one.stderr + two.stderr
    assert "epoch 2/2" in two.stderr
    wanted, found = models(space, one.stdout), models(space, two.stdout)
    assert len(wanted) == len(found) == 2
    for want, got in zip(wanted, found, strict=True):
        for name, weight in want.items():
            np.testing.assert_allclose(got[name], weight, rtol=0, atol=1e-5)
    assert any(not np.array_equal(weight, wanted[1][name]) for name, weight in wanted[0].items())


def test_more_workers_than_cores_are_refused(space: Path) -> None:
    done = alone(*train_words(space, "--engine", "ray", "--num-workers", "99999"))
    assert done.returncode == 2
    assert "expected: a cluster of at least 99999 cores" in done.stderr


def test_an_error_in_the_workers_is_told_once_and_not_tried_again(space: Path) -> None:
    done = alone(*train_words(space, "--engine", "ray", *TOO_EARLY))
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("expected:") == 1
    assert "Traceback" not in done.stderr


def test_options_of_ray_without_ray_are_said_to_be_ignored(space: Path, typed: Typed) -> None:
    words = train_words(space, "--num-workers", "2", "--epochs", "1", "--set", "train.batch=512")
    with shallow_audit():
        code, _, err = typed(*words[2:])
    assert code == 0, err
    assert "--num-workers is ignored without --engine ray" in err
