"""In: series that remember. Out: errors as slow loops, small changes of weights and many samples give them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from klinepred.evaluation.hac import correlation_influence, hac_error, lags_for, ratio_influence
from klinepred.evaluation.scores import score_all
from klinepred.evaluation.significance import draw_sessions
from tests.evaluation.samples import panel


def slow_error(influence: np.ndarray, bar: np.ndarray, lags: int) -> float:
    """Every pair of rows whose bars are at most `lags` apart, with Bartlett's weight."""
    order = sorted(set(bar.tolist()))
    place = {code: number for number, code in enumerate(order)}
    centred = influence - influence.mean()
    total = 0.0
    for i in range(len(centred)):
        for j in range(len(centred)):
            apart = abs(place[bar[i]] - place[bar[j]])
            if apart <= lags:
                total += (1.0 - apart / (lags + 1.0)) * centred[i] * centred[j]
    return math.sqrt(max(total, 0.0) * len(order) / (len(order) - 1)) / len(centred)


@pytest.mark.parametrize("horizon", [1, 5])
def test_the_error_equals_a_loop_over_pairs_of_rows(horizon: int) -> None:
    rng = np.random.default_rng(horizon)
    bar = np.sort(rng.integers(0, 60, 150)) * 7  # codes with holes, bars of one to six symbols
    influence = rng.standard_normal(150)
    lags = max(horizon, math.ceil(4 * (len(set(bar.tolist())) / 100) ** (2 / 9)))
    assert lags_for(len(set(bar.tolist())), horizon=horizon) == lags
    assert hac_error(influence, bar, horizon=horizon) == pytest.approx(slow_error(influence, bar, lags))
    shuffled = rng.permutation(150)
    assert hac_error(influence[shuffled], bar[shuffled], horizon=horizon) == pytest.approx(
        hac_error(influence, bar, horizon=horizon)
    )


def test_influences_are_what_a_score_moves_by_when_a_row_counts_more() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 40))
    step = 1e-6
    for row in (0, 7, 39):
        weight = np.ones(40)
        weight[row] += step * 40
        centre = [np.average(each, weights=weight) for each in (a, b)]
        cross, up, right = (
            np.average((x - centre[i]) * (y - centre[j]), weights=weight)
            for x, y, i, j in ((a, b, 0, 1), (a, a, 0, 0), (b, b, 1, 1))
        )
        moved = (cross / math.sqrt(up * right) - stats.pearsonr(a, b).statistic) / step
        assert correlation_influence(a, b)[row] == pytest.approx(moved, rel=1e-3, abs=1e-4)
        top, bottom = a**2, b**2
        moved = (np.average(top, weights=weight) / np.average(bottom, weights=weight) - top.sum() / bottom.sum()) / step
        assert ratio_influence(top, bottom)[row] == pytest.approx(moved, rel=1e-3, abs=1e-4)


def test_the_error_is_the_spread_over_samples_though_bars_overlap_and_symbols_move_together() -> None:
    rng = np.random.default_rng(2)
    bars, symbols, horizon = 300, 4, 6
    found, errors, naive = [], [], []
    for _ in range(200):
        common = rng.standard_normal(bars + horizon - 1)
        total = np.convolve(common, np.ones(horizon), mode="valid")  # a label over six bars
        slow = np.convolve(rng.standard_normal(bars + horizon - 1), np.ones(horizon), mode="valid")
        y = np.repeat(total[:, None], symbols, axis=1) + 0.5 * rng.standard_normal((bars, symbols))
        pred = np.repeat(slow[:, None], symbols, axis=1) + 0.5 * rng.standard_normal((bars, symbols))
        bar = np.repeat(np.arange(bars), symbols)
        found.append(np.corrcoef(pred.ravel(), y.ravel())[0, 1])
        errors.append(hac_error(correlation_influence(pred.ravel(), y.ravel()), bar, horizon=horizon))
        naive.append(1.0 / math.sqrt(bars * symbols))
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.2)
    assert np.mean(naive) < 0.5 * np.std(found)


def test_every_score_has_both_errors_and_they_agree_where_sessions_do_not_matter() -> None:
    sample = panel(3, ic=0.05, sessions=60, forecast=None)
    score = score_all(sample, {"model": sample.pred_M}, draws_BS=draw_sessions(60, repeats=1500, seed=1))["model"].head
    for name in ("mse", "r2", "ic", "rank_ic", "cs_ic", "cs_rank_ic", "hit_rate"):
        by_session, by_bar = getattr(score, f"{name}_se"), getattr(score, f"{name}_hac")
        assert by_session > 0
        assert by_bar == pytest.approx(by_session, rel=0.35), name
    hits = np.sign(sample.pred_M) == np.sign(sample.y_M)
    shares = [hits[sample.session_M == session].mean() for session in range(60)]
    assert score.hit_rate_se == pytest.approx(np.std(shares, ddof=1) / math.sqrt(60), rel=0.1)
    errors = (sample.pred_M - sample.y_M) ** 2
    means = [errors[sample.session_M == session].mean() for session in range(60)]
    assert score.mse_se == pytest.approx(np.std(means, ddof=1) / math.sqrt(60), rel=0.1)
    slow = [
        stats.pearsonr(sample.pred_M[sample.bar_M == bar], sample.y_M[sample.bar_M == bar]).statistic
        for bar in np.unique(sample.bar_M)
    ]
    assert score.cs_ic == pytest.approx(np.mean(slow))


def test_what_is_not_defined_has_no_error() -> None:
    assert math.isnan(hac_error(np.zeros(0), np.zeros(0, dtype=np.int64), horizon=1))
    assert math.isnan(hac_error(np.ones(5), np.zeros(5, dtype=np.int64), horizon=1))
    assert np.isnan(correlation_influence(np.full(5, 0.1), np.arange(5.0))).all()
    assert np.isnan(ratio_influence(np.ones(3), np.zeros(3))).all()
