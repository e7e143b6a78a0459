"""In: an evaluation. Out: its PNG preview."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from klinepred.evaluation.importance import Importance
from klinepred.evaluation.intervals import score_intervals
from klinepred.evaluation.picture import draw_calibration, draw_evaluation, draw_importance
from klinepred.evaluation.verdict import judge
from tests.evaluation.samples import panel


def test_the_picture_is_a_png_and_a_constant_forecast_makes_one_too(tmp_path: Path) -> None:
    sample = panel(1, ic=0.1)
    for each in (sample, sample.with_forecast(np.zeros(sample.rows))):
        path = draw_evaluation(judge(each), tmp_path / "evaluation.png")
        assert path is not None
        assert path.read_bytes().startswith(b"\x89PNG")


def test_an_empty_test_part_has_no_picture(tmp_path: Path) -> None:
    empty = replace(judge(panel(1)), rows=0)
    assert draw_evaluation(empty, tmp_path / "evaluation.png") is None
    assert list(tmp_path.iterdir()) == []


def test_calibration_and_importance_are_pngs_and_none_without_data(tmp_path: Path) -> None:
    sample = panel(1, ic=0.1)
    wide = np.full(sample.rows, 1.3)
    intervals = score_intervals(sample, lo_M=-wide, hi_M=wide, up_M=0.5 + 0.01 * sample.pred_M)
    assert draw_calibration(judge(sample), tmp_path / "calibration.png") is None
    assert draw_importance((), tmp_path / "importance.png") is None
    assert list(tmp_path.iterdir()) == []
    weights = tuple(Importance(f"price__{number}", 0.1 - 0.01 * number, 0.0) for number in range(40))
    draw_calibration(judge(sample, intervals=intervals), tmp_path / "calibration.png")
    draw_importance(weights, tmp_path / "importance.png")
    for name in ("calibration.png", "importance.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
