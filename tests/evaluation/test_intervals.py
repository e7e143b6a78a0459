"""In: outcomes of known distributions. Out: interval scores equal closed forms."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from klinepred.evaluation.breakdown import by_time
from klinepred.evaluation.intervals import score_distribution, score_intervals
from klinepred.model.calibration import GRID, Calibration, KindCalibration
from tests.evaluation.samples import panel

GAUSS = NormalDist()


def normal(slope: float) -> KindCalibration:
    """A standard normal around `slope` times the forecast."""
    levels = np.clip(GRID, 1e-4, 1.0 - 1e-4)
    quantiles = np.array([GAUSS.inv_cdf(float(level)) for level in levels])
    return KindCalibration(slope, quantiles, GAUSS.inv_cdf(0.1), GAUSS.inv_cdf(0.9), 1000, "by hand")


def test_the_score_of_a_normal_distribution_is_its_closed_form() -> None:
    sample = panel(1, sessions=30)
    sample = replace(sample, pred_M=np.zeros(sample.rows))
    found = score_distribution(sample, Calibration((normal(1.0), None)))
    # CRPS of N(0, 1) at y: y (2 Phi(y) - 1) + 2 phi(y) - 1 / sqrt(pi) (Gneiting and Raftery 2007, equation 21)
    y = sample.raw_M
    closed = y * (2 * np.vectorize(GAUSS.cdf)(y) - 1) + 2 * np.vectorize(GAUSS.pdf)(y) - 1 / np.sqrt(np.pi)
    within = sample.kind_M == 0
    assert found[within, 0].mean() == pytest.approx(closed[within].mean(), rel=0.01)
    assert np.isnan(found[~within]).all(), "a kind of step without calibration has no score"


def test_a_forecast_that_knows_more_scores_lower_than_none() -> None:
    sample = panel(2, sessions=30)
    knows = replace(sample, pred_M=0.7 * sample.raw_M)
    calibration = Calibration((normal(1.0), normal(1.0)))
    lo, hi = calibration.interval(knows.pred_M, knows.kind_M)
    up = calibration.p_up(knows.pred_M, knows.kind_M)
    crps = score_distribution(knows, calibration)
    every, within, across = score_intervals(knows, lo_M=lo, hi_M=hi, up_M=up, crps_M2=crps)
    assert every.crps < every.crps_base
    assert every.crps == pytest.approx((within.crps * within.rows + across.crps * across.rows) / every.rows)
    (without, *_) = score_intervals(knows, lo_M=lo, hi_M=hi, up_M=up)
    assert np.isnan(without.crps)
    assert without.coverage == every.coverage


def test_bars_are_counted_by_the_half_hour_they_open_in() -> None:
    sample = panel(1, sessions=20, bars=13, symbols=8)  # bars 0 to 11 within, bar 12 across the break
    table = by_time(sample)
    assert dict(table.select("since_open", "rows").iter_rows()) == {"break": 160, "0:00": 960, "0:30": 960}
    first = (sample.kind_M == 0) & (sample.ts_M % 86_400_000_000 < 30 * 60_000_000)
    by_hand = np.corrcoef(sample.pred_M[first], sample.y_M[first])[0, 1]
    assert table.filter(since_open="0:00")["ic"][0] == pytest.approx(by_hand, rel=1e-9)
