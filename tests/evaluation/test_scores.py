"""In: a panel. Out: scores as scipy and slow loops give them; pairs of forecasts; intervals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from klinepred.evaluation.intervals import score_intervals
from klinepred.evaluation.scores import gain, score_all
from klinepred.evaluation.significance import draw_sessions
from klinepred.model.calibration import fit_calibration
from tests.evaluation.samples import panel


def test_every_selection_equals_scipy_on_its_rows() -> None:
    sample = panel(1, ic=0.1, sessions=12)
    scored = score_all(sample, {"model": sample.pred_M}, draws_BS=draw_sessions(12, repeats=100, seed=1))["model"]
    assert [(score.target, score.steps) for score in scored.scores] == [
        (target, steps) for target in ("relative", "raw") for steps in ("all", "within-session", "across-break")
    ]
    for score in scored.scores:
        mask = sample.of(score.steps)
        pred, y = sample.pred_M[mask], (sample.y_M if score.target == "relative" else sample.raw_M)[mask]
        clipped = np.clip(y, -6, 6)
        assert score.rows == mask.sum()
        assert score.sessions == 12
        assert score.mse == pytest.approx(np.mean((y - pred) ** 2))
        assert score.r2_clipped == pytest.approx(1 - np.sum((clipped - pred) ** 2) / np.sum(clipped**2))
        assert score.ic == pytest.approx(stats.pearsonr(pred, y).statistic)
        assert score.ic_clipped == pytest.approx(stats.pearsonr(pred, clipped).statistic)
        assert score.rank_ic == pytest.approx(stats.spearmanr(pred, y).statistic)
        bars = sample.bar_M[mask]
        slow = [stats.spearmanr(pred[bars == bar], y[bars == bar]).statistic for bar in np.unique(bars)]
        assert score.cs_rank_ic == pytest.approx(np.mean(slow))
        assert score.bars == len(slow)
        assert 0 < score.ic_se < 1


def test_a_raw_target_is_scored_once() -> None:
    sample = panel(2, relative=False)
    scored = score_all(sample, {"model": sample.pred_M}, draws_BS=draw_sessions(20, repeats=50, seed=1))
    assert {score.target for score in scored["model"].scores} == {"raw"}


def test_the_error_of_the_cross_sectional_mean_is_that_of_its_sessions() -> None:
    sample = panel(3, sessions=100, bars=6)
    score = score_all(sample, {"model": sample.pred_M}, draws_BS=draw_sessions(100, repeats=2000, seed=1))["model"].head
    means = []
    for session in range(100):
        mask = sample.session_M == session
        bars = sample.bar_M[mask]
        pred, y = sample.pred_M[mask], sample.y_M[mask]
        means.append(np.mean([stats.spearmanr(pred[bars == bar], y[bars == bar]).statistic for bar in np.unique(bars)]))
    assert score.cs_rank_ic_se == pytest.approx(np.std(means, ddof=1) / 10, rel=0.1)


def test_a_forecast_does_not_beat_itself_or_its_double() -> None:
    sample = panel(4, ic=0.1)
    scored = score_all(
        sample,
        {"model": sample.pred_M, "double": 2 * sample.pred_M, "zero": np.zeros(sample.rows)},
        draws_BS=draw_sessions(20, repeats=200, seed=1),
    )
    assert gain(scored["model"], scored["double"]).value == pytest.approx(0.0, abs=1e-12)
    assert not gain(scored["model"], scored["double"]).above(1e-9)
    zero = gain(scored["model"], scored["zero"])
    assert zero.value == pytest.approx(scored["model"].head.ic)
    assert zero.se == pytest.approx(scored["model"].head.ic_se)


def test_pairing_makes_the_difference_of_like_forecasts_sharper() -> None:
    sample = panel(5, ic=0.1)
    like = sample.pred_M + 0.1 * sample.pred_M.std() * np.random.default_rng(1).standard_normal(sample.rows)
    scored = score_all(sample, {"a": sample.pred_M, "b": like}, draws_BS=draw_sessions(20, repeats=400, seed=1))
    assert gain(scored["a"], scored["b"]).se < 0.3 * scored["a"].head.ic_se


def test_intervals_of_a_calibrated_model_cover_four_in_five() -> None:
    past, now = panel(6, ic=0.1, sessions=60), panel(7, ic=0.1, sessions=60)
    everywhere, nowhere = np.ones(past.rows, dtype=bool), np.zeros(past.rows, dtype=bool)
    calibration = fit_calibration(
        past.pred_M, past.raw_M, past.kind_M, time_N=past.ts_M, held=everywhere, spare=nowhere, train=nowhere
    )
    lo, hi = calibration.interval(now.pred_M, now.kind_M)
    scores = score_intervals(now, lo_M=lo, hi_M=hi, up_M=calibration.p_up(now.pred_M, now.kind_M))
    assert [score.steps for score in scores] == ["all", "within-session", "across-break"]
    whole = scores[0]
    assert whole.coverage == pytest.approx(0.8, abs=0.03)
    assert whole.coverage + whole.below + whole.above == pytest.approx(1.0)
    assert sum(rows for _, _, rows in whole.reliability) == whole.rows == now.rows
    assert whole.brier == pytest.approx(np.mean((calibration.p_up(now.pred_M, now.kind_M) - (now.raw_M > 0)) ** 2))
    assert whole.brier_base == pytest.approx(0.25, abs=0.001)


def test_rows_without_an_interval_are_left_out() -> None:
    sample = panel(8)
    lo = np.where(sample.kind_M == 1, np.nan, -1.0)
    scores = score_intervals(sample, lo_M=lo, hi_M=-lo, up_M=np.full(sample.rows, 0.5))
    assert [score.steps for score in scores] == ["all", "within-session"]
    assert scores[0].rows == int((sample.kind_M == 0).sum())
