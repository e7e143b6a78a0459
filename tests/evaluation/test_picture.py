"""The PNG preview."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from klinepred.evaluation.picture import draw_evaluation
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
