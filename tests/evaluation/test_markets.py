"""In: simulated markets without a signal, with one, with a leak. Out: the word for a ridge model trained on each.

The full counts, on networks, are those of `benchmarks/verdict_calibration.py`.
"""

from __future__ import annotations

from datetime import date

import numpy as np
import polars as pl
import pytest

import klinepred as kp
from klinepred.bars.sources.simulate import simulate
from klinepred.dataset.make import Dataset, make_dataset
from klinepred.evaluation.result import Evaluation
from klinepred.evaluation.sample import take_sample
from klinepred.evaluation.verdict import judge
from klinepred.settings import DatasetSettings, EvaluateSettings, SimulateSettings, SplitSettings

CLOCK = kp.Clock("XNYS")
JUDGE = EvaluateSettings(bootstrap=200)


def market(seed: int, *, ic: float) -> Dataset:
    """Some 55 labelled sessions of six symbols: 30 to learn from, 17 to be graded on."""
    settings = SimulateSettings(seed=seed, symbols=6, start=date(2026, 1, 2), end=date(2026, 4, 20), ic=ic)
    frame = pl.concat([delivery.frame for delivery in simulate(settings, clock=CLOCK)]).sort("symbol", "ts")
    table = kp.build_features(kp.check_bars(frame, clock=CLOCK))
    return make_dataset(table, DatasetSettings(split=SplitSettings(train=0.55, validation=0.15)))


def ridge(data: Dataset, *, told: float = 0.0) -> Evaluation:
    """The verdict on a ridge model fitted on the train part; `told` adds so much of the answer to its forecasts."""
    train, test = data.mask("train"), data.mask("test")
    x, y = data.x_NF[train].astype(np.float64), np.clip(data.y_N[train].astype(np.float64), -6.0, 6.0)
    weight = np.linalg.solve(x.T @ x + 0.1 * len(x) * np.eye(x.shape[1]), x.T @ y)
    forecast = data.x_NF @ weight
    noise = np.random.default_rng(1).standard_normal(len(forecast))
    leaked = told * (np.nan_to_num(data.y_N) + 3.0 * noise)
    return judge(take_sample(data, forecast + leaked, mask_N=test), settings=JUDGE)


def test_of_twenty_markets_without_a_signal_one_has_an_edge_at_most() -> None:
    found = [ridge(market(seed, ic=0.0)) for seed in range(20)]
    words = [one.verdict for one in found]
    assert words.count("EDGE") <= 1, words
    assert "SUSPICIOUSLY GOOD" not in words
    inside = [abs(one.ic.value) <= 2.0 * one.ic.se for one in found]
    assert np.mean(inside) >= 0.85, "the true IC of a forecast of noise is 0"


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_signal_is_an_edge_and_a_leak_is_suspicious(seed: int) -> None:
    data = market(100 + seed, ic=0.11)
    honest, told = ridge(data), ridge(data, told=1.0)
    assert honest.verdict == "EDGE"
    assert 0.03 < honest.ic.value < 0.13
    assert told.verdict == "SUSPICIOUSLY GOOD"
