"""In: a small data set. Out: baselines as scikit-learn has them, which know nothing of the rows they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from klinepred.evaluation import baselines
from klinepred.evaluation.baselines import Baseline, fit_baselines

NAMES = ("lag_1", "lag_2", "lag_3", "other_a", "other_b")


@dataclass
class Rows:
    x: np.ndarray
    y: np.ndarray
    part: np.ndarray


def _rows(seed: int = 0, rows: int = 6000) -> Rows:
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((rows, 5)).astype(np.float32)
    x[:, 1] += 0.5 * x[:, 0]
    y = -0.3 * x[:, 0] + 0.2 * x[:, 3] + 0.2 * np.abs(x[:, 4]) + generator.standard_t(3, rows) + 0.05
    part = np.repeat([0, 1, 3], [rows // 2, rows // 4, rows - rows // 2 - rows // 4])
    return Rows(x, y.astype(np.float32), part)


@cache
def _usual() -> dict[str, Baseline]:
    return _fit(_rows())


def _fit(rows: Rows, *, tree_rows: int = baselines.TREE_ROWS) -> dict[str, Baseline]:
    found = fit_baselines(
        rows.x,
        rows.y,
        train_N=rows.part == 0,
        validation_N=rows.part == 1,
        ask_N=rows.part == 3,
        names=NAMES,
        last_return="lag_1",
        lags=NAMES[:3],
        label_clip=6.0,
        seed=1,
        tree_rows=tree_rows,
    )
    return {baseline.name: baseline for baseline in found}


def test_all_five_are_there_in_order() -> None:
    assert tuple(_usual()) == baselines.NAMES


def test_last_return_is_least_squares_on_one_feature() -> None:
    rows, found = _rows(), _usual()["last return"]
    train, test = rows.part == 0, rows.part == 3
    slow = LinearRegression().fit(rows.x[train][:, :1].astype(float), np.clip(rows.y[train], -6, 6))
    np.testing.assert_allclose(found.pred_M, slow.predict(rows.x[test][:, :1].astype(float)), atol=1e-6)
    assert found.weights["lag_1"] < 0


@pytest.mark.parametrize(("name", "width"), [("ar", 3), ("ridge", 5)])
def test_linear_models_are_the_ridge_that_validation_likes_best(name: str, width: int) -> None:
    rows, found = _rows(), _usual()[name]
    x, y = rows.x[:, :width].astype(float), np.clip(rows.y.astype(float), -6, 6)
    train, held, test = (rows.part == part for part in (0, 1, 3))
    models = {
        penalty: Ridge(alpha=max(penalty, 1e-12) * train.sum(), solver="svd").fit(x[train], y[train])
        for penalty in baselines.PENALTIES
    }
    errors = {penalty: np.mean((y[held] - model.predict(x[held])) ** 2) for penalty, model in models.items()}
    best = min(errors, key=lambda penalty: errors[penalty])
    assert found.settings["penalty"] == best
    np.testing.assert_allclose(found.pred_M, models[best].predict(x[test]), atol=1e-6)


def test_doubled_features_do_no_harm() -> None:
    rows = _rows()
    double = Rows(np.repeat(rows.x, 2, axis=1)[:, :5], rows.y, rows.part)
    assert all(np.isfinite(baseline.pred_M).all() for baseline in _fit(double).values())


def test_gradient_boosting_finds_what_is_not_linear() -> None:
    rows = _rows(rows=20_000)
    found = _fit(rows)
    y = rows.y[rows.part == 3]
    corr = {name: np.corrcoef(found[name].pred_M, y)[0, 1] for name in ("ridge", "hgb")}
    assert corr["hgb"] > corr["ridge"] + 0.01
    assert 0 < found["hgb"].settings["trees"] <= baselines.TREES


def test_gradient_boosting_of_noise_stays_near_the_mean() -> None:
    rows = _rows()
    noise = Rows(rows.x, np.random.default_rng(9).standard_normal(rows.y.size).astype(np.float32), rows.part)
    assert _fit(noise)["hgb"].settings["trees"] < 30


def test_fits_do_not_change_when_the_asked_rows_do() -> None:
    rows, changed = _rows(), _rows()
    test = rows.part == 3
    changed.y[test] = np.nan
    changed.x[test] = 1e3
    before, after = _usual(), _fit(changed)
    for name in baselines.NAMES:
        assert before[name].weights == after[name].weights
        assert before[name].settings == after[name].settings
    assert not np.array_equal(before["ridge"].pred_M, after["ridge"].pred_M)


def test_forecasts_of_a_row_do_not_depend_on_the_other_asked_rows() -> None:
    rows, changed = _rows(), _rows()
    last = np.flatnonzero(rows.part == 3)[-100:]
    changed.x[last] = -7.0
    before, after = _usual(), _fit(changed)
    for name in baselines.NAMES:
        np.testing.assert_array_equal(before[name].pred_M[:-100], after[name].pred_M[:-100])


def test_only_validation_chooses_and_only_train_fits() -> None:
    changed = _rows()
    changed.y[changed.part == 1] = 0.0
    before, after = _usual(), _fit(changed)
    assert before["last return"].weights == after["last return"].weights
    assert after["ridge"].settings["penalty"] == max(baselines.PENALTIES)
    assert after["hgb"].settings["trees"] == 0


def test_a_wild_label_counts_as_its_clip() -> None:
    rows, wild = _rows(), _rows()
    spot = np.flatnonzero((rows.part == 0) & (rows.y > 6.0))[0]
    wild.y[spot] = 1e6
    assert _usual()["ridge"].weights == _fit(wild)["ridge"].weights


def test_the_same_seed_draws_the_same_rows() -> None:
    first, second = (_fit(_rows(), tree_rows=1000)["hgb"] for _ in range(2))
    assert first.settings["train_rows"] == 1000
    np.testing.assert_array_equal(first.pred_M, second.pred_M)


def test_chunks_do_not_change_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _usual()["ridge"]
    monkeypatch.setattr(baselines, "CHUNK", 777)
    parts = _fit(_rows())["ridge"]
    np.testing.assert_allclose(whole.pred_M, parts.pred_M, atol=1e-12)


def test_without_train_rows_only_zero_is_left(caplog: pytest.LogCaptureFixture) -> None:
    rows = _rows()
    rows.part[rows.part == 0] = -1
    assert list(_fit(rows)) == ["zero"]
    assert "baselines" in caplog.text
