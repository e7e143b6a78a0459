"""In: predictions and returns drawn from known laws. Out: intervals cover, probabilities hold, nothing is invented."""

from __future__ import annotations

import json

import numpy as np
import pytest

from klinepred.model.calibration import Calibration, fit_calibration


def draw(count: int, *, slope: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    pred = rng.normal(0.0, 0.1, count)
    return pred, slope * pred + rng.standard_t(4, count)


def fit(pred: np.ndarray, raw: np.ndarray, kind: np.ndarray) -> Calibration:
    every = np.ones(pred.size, dtype=bool)
    return fit_calibration(pred, raw, kind, time_N=np.arange(pred.size), held=every, spare=~every, train=~every)


@pytest.mark.parametrize("seed", range(5))
def test_interval_covers_80_percent_of_fresh_rows(seed: int) -> None:
    pred, raw = draw(4000, slope=1.0, seed=seed)
    calibration = fit(pred, raw, np.zeros(4000, dtype=np.int8))
    new_pred, new_raw = draw(20_000, slope=1.0, seed=100 + seed)
    lo, hi = calibration.interval(new_pred, np.zeros(20_000, dtype=np.int8))
    assert abs(((new_raw >= lo) & (new_raw <= hi)).mean() - 0.8) < 0.02


def test_p_up_is_the_share_of_rises_among_rows_of_that_prediction() -> None:
    pred, raw = draw(50_000, slope=2.0, seed=1)
    calibration = fit(pred, raw, np.zeros(50_000, dtype=np.int8))
    new_pred, new_raw = draw(50_000, slope=2.0, seed=2)
    p_up = calibration.p_up(new_pred, np.zeros(50_000, dtype=np.int8))
    for low, high in ((0.3, 0.45), (0.45, 0.55), (0.55, 0.7)):
        here = (p_up > low) & (p_up <= high)
        assert here.sum() > 1000
        assert abs((new_raw[here] > 0).mean() - p_up[here].mean()) < 0.02


def test_a_prediction_without_information_is_given_no_weight() -> None:
    slopes = []
    for seed in range(20):
        pred, raw = draw(2000, slope=0.0, seed=seed)
        kind = fit(pred, raw, np.zeros(2000, dtype=np.int8)).kinds[0]
        assert kind is not None
        slopes.append(kind.slope)
    assert min(slopes) == 0.0
    assert np.mean([slope == 0.0 for slope in slopes]) > 0.5


def test_rows_that_move_together_count_once_in_the_slope_s_uncertainty() -> None:
    """Fifty copies of forty independent draws must not look like two thousand draws."""
    kept = []
    for seed in range(40):
        pred, raw = draw(40, slope=0.0, seed=seed)
        wide, tall = np.repeat(pred, 50), np.repeat(raw, 50)
        kind, every = np.zeros(2000, dtype=np.int8), np.ones(2000, dtype=bool)
        got = fit_calibration(
            wide, tall, kind, time_N=np.repeat(np.arange(40), 50), held=every, spare=~every, train=~every
        ).kinds[0]
        assert got is not None
        kept.append(got.slope > 0.0)
    assert np.mean(kept) < 0.35  # one in six by chance at |t| > 1; nearly half if copies counted


def test_kinds_of_step_are_calibrated_apart_and_scarce_ones_fall_back() -> None:
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1], [1000, 400]).astype(np.int8)
    raw = np.where(kind == 0, rng.normal(0, 1, 1400), rng.normal(0, 3, 1400))
    pred = np.zeros(1400)
    part = rng.integers(0, 3, 1400)
    held = (part == 0) & ((kind == 0) | (rng.random(1400) < 0.1))
    calibration = fit_calibration(pred, raw, kind, time_N=np.arange(1400), held=held, spare=part == 1, train=part == 2)
    within, breaks = calibration.kinds
    assert within is not None
    assert breaks is not None
    assert within.source == "calibration part"
    assert breaks.source == "calibration and validation part"
    assert breaks.hi > 2 * within.hi
    poor = fit_calibration(
        pred, raw, kind, time_N=np.arange(1400), held=held & (kind == 0), spare=kind < 0, train=part == 2
    )
    assert poor.kinds[1] is not None
    assert poor.kinds[1].source == "train part, unconditional and symmetric"
    assert poor.p_up(np.zeros(1), np.ones(1, dtype=np.int8))[0] == pytest.approx(0.5, abs=0.01)
    assert poor.kinds[1].slope == 0.0


def test_a_few_nights_of_many_symbols_are_too_few() -> None:
    rng = np.random.default_rng(0)
    nights, symbols = 11, 30
    shared = np.repeat(rng.normal(0.4, 1.0, nights), symbols)  # eleven nights that happened to rise
    raw, time = shared + rng.normal(0, 0.3, shared.size), np.repeat(np.arange(nights), symbols)
    kind, every = np.ones(raw.size, dtype=np.int8), np.ones(raw.size, dtype=bool)
    got = fit_calibration(np.zeros(raw.size), raw, kind, time_N=time, held=every, spare=~every, train=every)
    assert got.kinds[1] is not None
    assert got.kinds[1].source == "train part, unconditional and symmetric"
    assert got.p_up(np.zeros(1), np.ones(1, dtype=np.int8))[0] == pytest.approx(0.5, abs=0.01)


def test_a_kind_without_rows_has_no_interval_rather_than_a_guess() -> None:
    pred, raw = draw(500, slope=1.0, seed=0)
    calibration = fit(pred, raw, np.zeros(500, dtype=np.int8))
    lo, hi = calibration.interval(np.zeros(1), np.ones(1, dtype=np.int8))
    assert np.isnan(lo[0])
    assert np.isnan(hi[0])
    assert np.isnan(calibration.p_up(np.zeros(1), np.ones(1, dtype=np.int8))[0])


def test_p_up_never_claims_certainty() -> None:
    pred, raw = draw(500, slope=5.0, seed=0)
    p_up = fit(pred, raw, np.zeros(500, dtype=np.int8)).p_up(np.array([-1e6, 1e6]), np.zeros(2, dtype=np.int8))
    assert 0.0 < p_up[0] < 0.01
    assert 0.99 < p_up[1] < 1.0


def test_calibration_survives_json() -> None:
    pred, raw = draw(500, slope=1.0, seed=0)
    one = fit(pred, raw, np.zeros(500, dtype=np.int8))
    two = Calibration.from_dict(json.loads(json.dumps(one.to_dict())))
    kind = np.zeros(500, dtype=np.int8)
    assert np.array_equal(one.p_up(pred, kind), two.p_up(pred, kind))
    assert np.array_equal(one.interval(pred, kind)[0], two.interval(pred, kind)[0])
    assert two.kinds[1] is None


def test_a_kind_that_was_not_trained_on_speaks_of_its_own_returns_in_validation() -> None:
    """99 nights of -29, -28 … 69 units: the 10th and the 90th of them, and 69 of 99 rise, whatever was predicted."""
    raw = np.random.default_rng(3).permutation(np.arange(-29.0, 70.0))
    part = np.arange(99) % 3  # validation and calibration together, the third part counts for nothing
    raw, part = np.concatenate([raw, [500.0] * 30]), np.concatenate([np.where(part == 2, 0, part), np.full(30, 2)])
    kind = np.ones(raw.size, dtype=np.int8)
    got = fit_calibration(
        raw * 0.5,
        raw,
        kind,
        time_N=np.arange(raw.size),
        held=part == 0,
        spare=part == 1,
        train=part == 2,
        untrained=(1,),
    )
    assert got.kinds[1] is not None
    assert got.kinds[1].slope == 0.0
    assert got.kinds[1].rows == 99
    lo, hi = got.interval(np.zeros(1), np.ones(1, dtype=np.int8))
    assert (lo[0], hi[0]) == (-20.0, 60.0)  # ranks floor(0.1 x 100) and ceil(0.9 x 100) of 99
    assert got.p_up(np.zeros(1), np.ones(1, dtype=np.int8))[0] == pytest.approx(69 / 98)  # 0 is 29/98 of the way up


def test_nineteen_nights_are_too_few_for_a_kind_not_trained_on() -> None:
    raw = np.concatenate([np.full(19, 9.0), np.linspace(-3.0, 1.0, 200)])
    held = np.arange(raw.size) < 19
    got = fit_calibration(
        np.zeros(raw.size),
        raw,
        np.ones(raw.size, dtype=np.int8),
        time_N=np.arange(raw.size),
        held=held,
        spare=held & False,
        train=~held,
        untrained=(1,),
    )
    assert got.kinds[1] is not None
    assert got.kinds[1].source == "train part, unconditional and symmetric"
