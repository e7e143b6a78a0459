"""In: a network that reads one feature alone. Out: that feature has all the weight; the test part stays closed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from klinepred.dataset.make import Dataset
from klinepred.evaluation.importance import Importance, weigh_features
from klinepred.model.bundle import ModelBundle
from tests.model.bundles import small_bundle
from tests.training.tiny import tiny_dataset


class First(nn.Module):
    """Answers with the first feature of the step."""

    quantiles: tuple[float, ...] = ()

    def forward(self, x_BTF: torch.Tensor) -> torch.Tensor:
        return x_BTF[:, :, :1]


@pytest.fixture(scope="module")
def data() -> Dataset:
    return tiny_dataset(symbols=20)


def knower(data: Dataset) -> ModelBundle:
    return replace(small_bundle(features=tuple(data.features.names)), network=First().eval())  # type: ignore[arg-type]


def test_the_feature_that_is_read_has_all_the_weight_and_the_others_none(data: Dataset) -> None:
    before = data.x_NF.copy()
    first, *others = weigh_features(knower(data), data, seed=1)
    assert first.feature == data.features.names[0]
    # y = x + noise with both of variance 1: the error is 1, and 3 with x dealt anew; the IC falls from 0.71 to 0
    assert first.error_rise == pytest.approx(2.0, abs=0.4)
    assert first.ic_fall == pytest.approx(0.5**0.5, abs=0.1)
    assert {(one.error_rise, one.ic_fall) for one in others} == {(0.0, 0.0)}
    assert len(others) == len(data.features.names) - 1
    assert np.array_equal(data.x_NF, before)


def test_only_validation_rows_are_looked_at(data: Dataset) -> None:
    want = weigh_features(knower(data), data, seed=1)
    wild = np.where(data.mask("validation")[:, None], data.x_NF, np.float32(9.0)).astype(np.float32)
    spoilt = np.where(data.mask("validation"), data.y_N, np.nan).astype(np.float32)
    assert weigh_features(knower(data), replace(data, y_N=spoilt), seed=1) == want
    # an unlabelled last bar of a session is read, though not graded: one row in twelve is another
    (first, *_) = weigh_features(knower(data), replace(data, x_NF=wild), seed=1)
    assert first.feature == want[0].feature


def test_a_budget_too_small_gives_none_with_a_word(data: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    bundle = small_bundle(features=tuple(data.features.names))
    with caplog.at_level("INFO", logger="klinepred.evaluation"):
        assert weigh_features(bundle, data, seed=1, budget=1e4) == ()
    assert "not computed" in caplog.text


def test_the_same_seed_gives_the_same_weights(data: Dataset) -> None:
    bundle = small_bundle(features=tuple(data.features.names))
    one, two = (weigh_features(bundle, data, seed=4) for _ in range(2))
    assert one == two
    assert all(isinstance(each, Importance) for each in one)
    assert [each.error_rise for each in one] == sorted((each.error_rise for each in one), reverse=True)
