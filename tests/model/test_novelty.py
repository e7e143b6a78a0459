"""In: rows drawn from a known distribution, and others. Out: scores by the closed form; a threshold by validation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from klinepred.errors import ModelError
from klinepred.model.bundle import TABLE, load_bundle, save_bundle, sealed
from klinepred.model.novelty import Novelty, fit_novelty
from tests.model.bundles import small_bundle

ROOT = np.array([[1.0, 0.0, 0.0, 0.0], [0.9, 0.3, 0.0, 0.0], [0.0, 0.5, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
CENTRE = np.array([0.0, 1.0, -1.0, 0.0])
"""Four features: the first two say nearly the same, the last never moves."""


def drawn(rows: int, *, seed: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).standard_normal((rows, 4)) @ ROOT.T + CENTRE, dtype=np.float32)


@pytest.fixture(scope="module")
def fitted() -> Novelty:
    x_NF = np.concatenate([drawn(40_000, seed=1), drawn(9_999, seed=2)])
    train_N = np.arange(len(x_NF)) < 40_000
    novelty = fit_novelty(x_NF, train_N=train_N, validation_N=~train_N)
    assert novelty is not None
    return novelty


def test_the_score_is_the_squared_mahalanobis_distance_over_the_number_of_features(fitted: Novelty) -> None:
    x_NF = drawn(500, seed=3)
    away_N3 = x_NF[:, :3].astype(np.float64) - CENTRE[:3]
    want_N = np.einsum("nf,fg,ng->n", away_N3, np.linalg.inv(ROOT[:3, :3] @ ROOT[:3, :3].T), away_N3) / 4.0
    assert fitted.score(x_NF)[0] == pytest.approx(want_N, rel=0.1, abs=0.05)


def test_one_validation_row_in_a_thousand_lies_beyond_the_threshold(fitted: Novelty) -> None:
    scores = fitted.score(drawn(9_999, seed=2))[0]
    assert fitted.rows == 9_999
    assert int((scores > fitted.threshold).sum()) == 9  # the quantile at ceil(0.999 x 10,000) = 9,990 of 9,999
    fresh = fitted.score(drawn(100_000, seed=4))[0]
    assert 0.0003 < (fresh > fitted.threshold).mean() < 0.003
    assert fitted.too_far(drawn(100_000, seed=4)) == int((fresh > fitted.threshold).sum())


@pytest.mark.parametrize(
    ("row", "feature"),
    [
        ([0.0, 1.0, 15.0, 0.0], 2),  # far out in one feature
        ([2.0, -1.0, -1.0, 0.0], 1),  # each usual, together not: two that always agreed do not
        ([0.0, 1.0, -1.0, 1.0], 3),  # one that never moved does
    ],
)
def test_what_is_far_is_told_with_its_feature(fitted: Novelty, row: list[float], feature: int) -> None:
    score_N, most_N = fitted.score(np.array([row, CENTRE.tolist()], dtype=np.float32))
    assert score_N[0] > fitted.threshold > score_N[1]
    assert most_N[0] == feature


def test_too_few_rows_set_no_threshold() -> None:
    x_NF = drawn(3_000, seed=1)
    first_N = np.arange(3_000) < 2_500
    assert fit_novelty(x_NF, train_N=first_N, validation_N=~first_N) is None
    assert fit_novelty(x_NF, train_N=~first_N, validation_N=first_N) is None


def test_it_comes_back_with_the_bundle_and_odd_sizes_are_refused(tmp_path: Path, fitted: Novelty) -> None:
    bundle = replace(small_bundle(features=("a", "b", "c", "d")), novelty=fitted)
    folder = save_bundle(bundle, tmp_path / "m")
    back = load_bundle(folder).novelty
    assert back is not None
    assert back.to_dict() == fitted.to_dict()
    table = json.loads((folder / TABLE).read_text())
    for wrong in ({"precision": [[1.0]]}, {"centre": [0.0]}, {"threshold": "far"}):
        changed = sealed({**table, "novelty": {**table["novelty"], **wrong}})
        (folder / TABLE).write_text(json.dumps(changed))
        with pytest.raises(ModelError, match="does not fit"):
            load_bundle(folder)
    del table["novelty"]
    (folder / TABLE).write_text(json.dumps(sealed(table)))
    assert load_bundle(folder).novelty is None
