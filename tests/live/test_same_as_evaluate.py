"""In: predictions of a whole test part, recorded as if live. Out: the grade that `evaluate` gives the same rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from klinepred.config import load_pipeline
from klinepred.evaluation.sample import take_sample
from klinepred.live.grade import grade_open
from klinepred.live.ledger import record
from klinepred.live.score import read_ledger, score
from klinepred.metrics import coverage, hit_rate, ic
from klinepred.model.forward import forward_rows
from klinepred.pipeline import dataset_of, predict_bars
from tests.bars.made import utc
from tests.live.market import END, open_market, simulated


def test_a_graded_ledger_scores_as_evaluation_does(tmp_path: Path) -> None:
    space, bundle = open_market(tmp_path, simulated())
    data = dataset_of(bundle, space)
    mask_N = data.mask("test")
    sample = take_sample(data, forward_rows(bundle.network, data.x_NF, data.part("test")), mask_N=mask_N)
    lo_M, hi_M = bundle.calibration.interval(sample.pred_M, sample.kind_M)

    span = (utc("2026-04-10T19:55"), utc("2026-04-30T19:55"))  # from the night before the first test session on
    rows = predict_bars(bundle, space, load_pipeline("demo"), span=span, now=utc(END)).rows
    assert (
        record(space, rows, store_version=0, now=utc("2026-04-10T19:56"), universe=bundle.universe).new == sample.rows
    )
    assert grade_open(space, now=utc(END)).graded == sample.rows
    (found,) = score(read_ledger(space)).rows(named=True)
    hits = hit_rate(sample.pred_M, sample.raw_M)
    inside = np.isfinite(lo_M)
    assert (found["graded"], found["sessions"]) == (sample.rows, len(sample.sessions))
    assert found["ic"] == pytest.approx(ic(sample.pred_M, sample.raw_M), abs=1e-6)
    assert (found["hit_rate"], found["hit_base"]) == pytest.approx((hits.rate, hits.base))
    assert found["coverage80"] == pytest.approx(coverage(lo_M[inside], hi_M[inside], sample.raw_M[inside]), abs=1e-3)
