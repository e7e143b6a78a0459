"""In: a network that repeats a feature, labels by hand. Out: validation scores by kind of step, clipped and not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from klinepred.settings import DatasetSettings
from klinepred.training.validation import validate, zero_loss
from tests.training.tiny import tiny_dataset


class Reader(nn.Module):
    """Forecasts the first feature."""

    def forward(self, x_BTF: torch.Tensor) -> torch.Tensor:
        return x_BTF[..., :1]


class Twice(nn.Module):
    """Forecasts the first feature, one below it and two above it."""

    def forward(self, x_BTF: torch.Tensor) -> torch.Tensor:
        return torch.cat([x_BTF[..., :1], x_BTF[..., :1] - 1.0, x_BTF[..., :1] + 2.0], dim=-1)


def test_scores_are_apart_for_steps_within_and_across_a_break_clipped_at_6_only_where_they_say_so() -> None:
    data = tiny_dataset()
    rows = np.flatnonzero(data.mask("validation"))
    kind_N = data.kind_N.copy()
    kind_N[rows[:4]] = 1
    x_NF, y_N = data.x_NF.copy(), data.y_N.copy()
    x_NF[rows, 0], y_N[rows] = 0.0, 0.0
    x_NF[rows[:4], 0] = [1.0, 2.0, 3.0, 4.0]
    y_N[rows[:4]] = [2.0, 1.0, 4.0, 13.0]  # misses 1, 1, 1, 9; clipped at 6: 1, 1, 1, 2
    x_NF[rows[4:8], 0] = [1.0, -1.0, 1.0, -1.0]
    y_N[rows[4:8]] = [1.0, -1.0, -1.0, 1.0]  # misses 0, 0, 2, 2
    settings = DatasetSettings(label_clip=3.0)
    other = replace(data, x_NF=x_NF, y_N=y_N, kind_N=kind_N, settings=settings)
    got = validate(Reader(), other, kind="mse", device=torch.device("cpu"))
    count = rows.size
    assert got.scores["val_break_rows"] == 4
    assert got.scores["val_break_mse"] == pytest.approx((1 + 1 + 1 + 81) / 4)
    assert got.scores["val_break_mse_clip6"] == pytest.approx((1 + 1 + 1 + 4) / 4)
    assert got.scores["val_break_rank_ic"] == pytest.approx(0.8)  # ranks 2 1 3 4 against 1 2 3 4
    assert got.scores["val_break_ic"] == pytest.approx(np.corrcoef([1, 2, 3, 4], [2, 1, 4, 13])[0, 1])
    assert got.scores["val_break_ic_clip6"] == pytest.approx(np.corrcoef([1, 2, 3, 4], [2, 1, 4, 6])[0, 1])
    assert got.scores["val_within_rows"] == count - 4
    assert got.scores["val_within_mse"] == pytest.approx(8 / (count - 4))
    assert got.scores["val_within_ic"] == pytest.approx(0.0)
    assert got.scores["val_mse"] == pytest.approx((84 + 8) / count)
    assert got.scores["val_mse_clip6"] == pytest.approx((7 + 8) / count)
    # the training loss clips at label_clip: misses 1, 1, 0, 1
    assert got.loss == pytest.approx((1 + 1 + 0 + 1 + 8) / count)
    assert got.loss_unclipped == pytest.approx(got.scores["val_mse"])


def test_a_kind_of_step_without_rows_has_no_scores() -> None:
    got = validate(Reader(), tiny_dataset(), kind="mse", device=torch.device("cpu"))
    assert "val_within_ic" in got.scores
    assert not [name for name in got.scores if "break" in name]


def test_skill_is_the_share_of_the_loss_of_zero_that_is_gone_and_quantiles_do_not_count_in_it() -> None:
    data = tiny_dataset()
    rows = np.flatnonzero(data.mask("validation"))
    x_NF, y_N = data.x_NF.copy(), data.y_N.copy()
    x_NF[rows, 0], y_N[rows] = 0.0, 0.0
    x_NF[rows[:2], 0], y_N[rows[:2]] = [1.0, 3.0], [4.0, 2.0]
    other = replace(data, x_NF=x_NF, y_N=y_N, settings=DatasetSettings(label_clip=3.0))
    cpu, count = torch.device("cpu"), rows.size
    # clipped labels 3 and 2: misses 2 and 1 of the forecast, 3 and 2 of zero
    for kind, zero, left in (("mse", 9.0 + 4.0, 4.0 + 1.0), ("huber", 2.5 + 1.5, 1.5 + 0.5)):
        got = validate(Reader(), other, kind=kind, device=cpu)
        assert got.skill == pytest.approx(1.0 - left / zero, rel=1e-12)
        assert zero_loss(other, kind=kind) == pytest.approx(zero / count, rel=1e-12)
        assert (got.rows, got.below) == (count, ())
    # pinball of zero at the levels 0.1 and 0.9, labels 3 and 2: the mean of 0.1 and 0.9 of each
    assert zero_loss(other, kind="quantile", quantiles=(0.1, 0.9)) == pytest.approx((13.0 + 0.5 * 5.0) / count)
    got = validate(Twice(), other, kind="quantile", quantiles=(0.1, 0.9), device=cpu)
    assert got.skill == pytest.approx(1.0 - 5.0 / 13.0, rel=1e-12)
    y_V = y_N[rows]
    assert got.below == tuple(float((y_V <= out_V).mean()) for out_V in (x_NF[rows, 0] - 1.0, x_NF[rows, 0] + 2.0))


def test_forecasts_that_are_not_finite_have_no_scores_and_no_finite_loss() -> None:
    data = tiny_dataset()
    x_NF = data.x_NF.copy()
    x_NF[np.flatnonzero(data.mask("validation"))[3], 0] = np.nan
    got = validate(Reader(), replace(data, x_NF=x_NF), kind="mse", device=torch.device("cpu"))
    assert got.scores == {}
    assert all(np.isnan([got.loss, got.loss_unclipped, got.skill, got.ic, got.rank_ic]))
