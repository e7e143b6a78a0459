"""In: a dataset of simulated sessions. Out: the test part holds its own sessions and no stray day before them."""

from __future__ import annotations

from datetime import date

import numpy as np
import polars as pl

from klinepred.bars.check import check_bars
from klinepred.bars.sources.simulate import simulate
from klinepred.calendar import Clock
from klinepred.dataset.make import make_dataset
from klinepred.evaluation.sample import take_sample
from klinepred.features.build import build_features
from klinepred.settings import DatasetSettings, SimulateSettings, SplitSettings


def test_the_night_before_the_test_part_is_no_session_of_its_own() -> None:
    settings = SimulateSettings(symbols=5, start=date(2026, 1, 2), end=date(2026, 3, 31), seed=4)
    bars = pl.concat([delivery.frame for delivery in simulate(settings, clock=Clock("XNYS"))]).sort("symbol", "ts")
    table = build_features(check_bars(bars, clock=Clock("XNYS")))
    split = SplitSettings(train_end=date(2026, 2, 27), validation_end=date(2026, 3, 17))
    data = make_dataset(table, DatasetSettings(split=split))
    mask = data.mask("test")
    sample = take_sample(data, np.zeros(mask.size, dtype=np.float32), mask_N=mask)
    # 18 to 31 March 2026 without the weekends of the 21st and the 28th
    assert sample.sessions == tuple(f"2026-03-{day}" for day in (18, 19, 20, 23, 24, 25, 26, 27, 30, 31))
    # a whole session of 78 bars has 77 steps inside it and the night before it, for each of 5 symbols
    assert np.bincount(sample.session_M).tolist() == [5 * 78] * 10
    assert (np.bincount(sample.session_M, weights=sample.kind_M) == 5).all()
