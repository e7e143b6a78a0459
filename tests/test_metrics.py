"""In: forecasts and outcomes. Out: scores as scipy, slow loops and hand-made numbers give them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from klinepred import metrics
from klinepred.errors import DatasetError


def _pair(seed: int, rows: int, *, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    pred = generator.standard_normal(rows)
    y = 0.3 * pred + generator.standard_t(3, rows)
    return (np.round(pred, 1), np.round(y, 0)) if ties else (pred, y)


def test_squared_error_and_r2_of_hand_made_numbers() -> None:
    pred, y = np.array([1.0, 0.0, -1.0]), np.array([2.0, 1.0, -2.0])
    assert metrics.mse(pred, y) == pytest.approx(1.0)
    assert metrics.r2_against_zero(pred, y) == pytest.approx(1.0 - 3.0 / 9.0)
    assert metrics.r2_against_zero(np.zeros(3), y) == 0.0


def test_r2_does_not_credit_the_sample_mean() -> None:
    y = np.full(10, 5.0)
    assert metrics.r2_against_zero(np.full(10, 5.0), y) == 1.0
    assert metrics.r2_against_zero(np.zeros(10), y) == 0.0


@pytest.mark.parametrize("ties", [False, True])
def test_ic_and_rank_ic_equal_scipy(ties: bool) -> None:
    pred, y = _pair(1, 500, ties=ties)
    assert metrics.ic(pred, y) == pytest.approx(stats.pearsonr(pred, y).statistic, abs=1e-12)
    assert metrics.rank_ic(pred, y) == pytest.approx(stats.spearmanr(pred, y).statistic, abs=1e-12)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60))
def test_ranks_equal_scipy_whatever_the_ties(values: list[int]) -> None:
    x = np.array(values, dtype=np.float64)
    np.testing.assert_array_equal(metrics.average_ranks(x), stats.rankdata(x))


@pytest.mark.parametrize("spread", [1, 1_000_000], ids=["small codes", "codes beyond 16 bits"])
def test_ranks_within_groups_equal_a_slow_loop(spread: int) -> None:
    generator = np.random.default_rng(2)
    x, group = np.round(generator.standard_normal(400), 1), generator.integers(0, 30, 400) * spread
    ranks = metrics.group_ranks(x, group)
    for code in np.unique(group):
        np.testing.assert_array_equal(ranks[group == code], stats.rankdata(x[group == code]))


@pytest.mark.parametrize("rank", [True, False])
def test_group_ic_equals_a_slow_loop(rank: bool) -> None:
    generator = np.random.default_rng(3)
    pred, y = _pair(3, 2000, ties=True)
    group = generator.integers(0, 250, 2000)
    found = metrics.group_ic(pred, y, group, rank=rank, min_size=5)
    for code, size, value in zip(found.code_G, found.size_G, found.ic_G, strict=True):
        a, b = pred[group == code], y[group == code]
        assert size == a.size
        if size < 5 or np.ptp(a) == 0.0 or np.ptp(b) == 0.0:
            assert np.isnan(value)
        else:
            slow = stats.spearmanr(a, b) if rank else stats.pearsonr(a, b)
            assert value == pytest.approx(slow.statistic, abs=1e-10)
    assert found.mean == pytest.approx(np.nanmean(found.ic_G))


def test_group_ic_is_undefined_where_a_group_is_constant_or_small() -> None:
    group = np.repeat([0, 1, 2], [6, 6, 2])
    pred = np.concatenate([np.full(6, 0.1), np.arange(6.0), [0.0, 1.0]])
    y = np.arange(14.0)
    for rank in (True, False):
        found = metrics.group_ic(pred, y, group, rank=rank)
        assert np.isnan(found.ic_G[0])
        assert found.ic_G[1] == pytest.approx(1.0)
        assert np.isnan(found.ic_G[2])
        assert found.mean == pytest.approx(1.0)


def test_the_order_of_rows_does_not_matter() -> None:
    pred, y = _pair(4, 3000, ties=True)
    group = np.random.default_rng(5).integers(0, 100, 3000)
    mixed = np.random.default_rng(6).permutation(3000)
    first = metrics.group_ic(pred, y, group)
    second = metrics.group_ic(pred[mixed], y[mixed], group[mixed])
    np.testing.assert_allclose(first.ic_G, second.ic_G, atol=1e-12)


@pytest.mark.parametrize(
    ("pred", "y"),
    [
        ([1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0]),
        ([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]),
        ([1.0, 2.0], [2.0, 1.0]),
        ([], []),
    ],
    ids=["constant forecast", "constant outcome", "two rows", "no rows"],
)
def test_an_undefined_correlation_is_nan_without_a_warning(pred: list[float], y: list[float]) -> None:
    a, b = np.array(pred), np.array(y)
    assert np.isnan(metrics.ic(a, b))
    assert np.isnan(metrics.rank_ic(a, b))
    assert np.isnan(metrics.group_ic(a, b, np.zeros(a.size, dtype=int)).mean)


def test_scores_of_no_rows_are_nan() -> None:
    none = np.empty(0)
    assert np.isnan(metrics.mse(none, none))
    assert np.isnan(metrics.r2_against_zero(none, none))
    assert np.isnan(metrics.pinball(none, none, level=0.1))
    assert np.isnan(metrics.coverage(none, none, none))
    assert np.isnan(metrics.hit_rate(none, none).rate)


def test_hit_rate_leaves_zero_returns_out_and_counts_them() -> None:
    pred = np.array([1.0, -1.0, 1.0, 0.0, 1.0, -1.0])
    y = np.array([2.0, -2.0, -2.0, 2.0, 0.0, 0.0])
    hits = metrics.hit_rate(pred, y)
    assert (hits.counted, hits.zeros) == (4, 2)
    assert hits.rate == pytest.approx((2 + 0.5) / 4)
    assert hits.base == pytest.approx(0.5)


def test_base_rate_is_that_of_the_more_frequent_sign() -> None:
    y = np.array([-1.0, -1.0, -1.0, 1.0])
    assert metrics.hit_rate(np.full(4, 1.0), y).rate == pytest.approx(0.25)
    assert metrics.hit_rate(np.full(4, 1.0), y).base == pytest.approx(0.75)


def test_pinball_equals_scikit_learn_and_is_least_at_the_quantile() -> None:
    from sklearn.metrics import mean_pinball_loss

    y = np.random.default_rng(7).standard_normal(4001)
    at = np.full(y.size, np.quantile(y, 0.1))
    assert metrics.pinball(at, y, level=0.1) == pytest.approx(mean_pinball_loss(y, at, alpha=0.1), abs=1e-12)
    assert metrics.pinball(at, y, level=0.1) < metrics.pinball(at + 0.1, y, level=0.1)
    assert metrics.pinball(at, y, level=0.1) < metrics.pinball(at - 0.1, y, level=0.1)


def test_coverage_includes_both_ends() -> None:
    y = np.array([0.0, 1.0, 2.0, 3.0])
    assert metrics.coverage(np.full(4, 1.0), np.full(4, 2.0), y) == 0.5


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_missing_value_is_refused_and_not_ranked(bad: float) -> None:
    pred, y = np.array([1.0, 2.0, bad, 4.0]), np.arange(4.0)
    for score in (metrics.mse, metrics.ic, metrics.rank_ic, metrics.r2_against_zero):
        with pytest.raises(DatasetError, match=r"score"):
            score(pred, y)
    with pytest.raises(DatasetError, match=r"score"):
        metrics.ic(np.arange(3.0), np.arange(4.0))
