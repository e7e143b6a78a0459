"""In: columns with known mean and spread. Out: the scaler is fitted on what it is given, and never divides by zero."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from klinepred.dataset import scale
from klinepred.dataset.scale import Scaler, fit_scaler
from klinepred.errors import ModelError


def test_mean_and_spread_are_those_of_the_train_rows() -> None:
    """Case 25: 1..80 in training, 1000 on the last 20 rows."""
    column = pl.Series("a", [float(i) for i in range(1, 81)] + [1000.0] * 20)
    frame = pl.DataFrame([column])
    scaler = fit_scaler(frame.head(80), ("a",), clip=6.0)
    assert scaler.centre_F[0] == pytest.approx(40.5)
    assert scaler.scale_F[0] == pytest.approx(23.0922, abs=5e-5)
    scaled = scaler.apply(frame)[:, 0]
    assert scaled[0] == pytest.approx((1 - 40.5) / 23.0922, rel=1e-5)
    assert scaled[-1] == 6.0  # clipped


def test_masked_values_become_the_centre_and_do_not_count() -> None:
    frame = pl.DataFrame({"a": [1.0, None, 3.0], "b": [None, None, None]}, schema={"a": pl.Float32, "b": pl.Float32})
    scaler = fit_scaler(frame, ("a", "b"), clip=6.0)
    assert scaler.centre_F[0] == 2.0
    assert scaler.apply(frame).tolist() == [[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]


def test_a_column_constant_in_training_is_not_divided_by_zero() -> None:
    scaler = fit_scaler(pl.DataFrame({"a": [0.1] * 1000}), ("a",), clip=6.0)
    assert scaler.scale_F[0] == 1.0
    later = scaler.apply(pl.DataFrame({"a": [0.1, 0.6]}))
    assert later[:, 0] == pytest.approx([0.0, 0.5], abs=1e-6)


def test_features_are_taken_by_name_and_a_missing_one_is_named() -> None:
    frame = pl.DataFrame({"a": [1.0, 3.0], "b": [10.0, 30.0]})
    scaler = fit_scaler(frame, ("a", "b"), clip=6.0)
    swapped = frame.select("b", "a")
    assert np.array_equal(scaler.apply(swapped), scaler.apply(frame))
    with pytest.raises(ModelError, match="b"):
        scaler.apply(frame.select("a"))


def test_scaler_survives_json_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    scaler = fit_scaler(pl.DataFrame({"a": rng.normal(size=50), "b": rng.normal(size=50)}), ("a", "b"), clip=5.0)
    back = Scaler.from_dict(json.loads(json.dumps(scaler.to_dict())))
    assert back.names == scaler.names
    assert np.array_equal(back.centre_F, scaler.centre_F)
    assert np.array_equal(back.scale_F, scaler.scale_F)
    assert back.clip == 5.0
    whole = Scaler.from_dict(
        {"names": ["a"], "centre": [0], "scale": [2], "clip": 6}
    )  # as another program may write it
    assert {str(whole.centre_F.dtype), str(whole.scale_F.dtype)} == {"float64"}
    assert type(whole.clip) is float


@pytest.mark.parametrize("unit", [1e-12, 1e-20, 1.0, 1e20])
def test_a_feature_in_small_units_is_scaled_like_any_other(unit: float) -> None:
    """Returns per dollar of volume are of the order of 1e-12. -1, 0 and 4 have mean 1 and spread sqrt(14/3)."""
    frame = pl.DataFrame({"a": [-unit, 0.0, 4.0 * unit]})
    scaler = fit_scaler(frame, ("a",), clip=6.0)
    assert scaler.apply(frame)[:, 0] == pytest.approx([-2 / (14 / 3) ** 0.5, -1 / (14 / 3) ** 0.5, 3 / (14 / 3) ** 0.5])
    assert fit_scaler(pl.DataFrame({"a": [0.1 * unit] * 1000}), ("a",), clip=6.0).scale_F[0] == 1.0


def test_rows_come_out_once_and_in_order_whatever_the_size_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pl.DataFrame({"a": [float(row) for row in range(10)], "b": [0.5] * 10})
    scaler = Scaler(("a", "b"), np.array([2.0, 0.0]), np.array([4.0, 1.0]), 1.5)
    want = [[min(1.5, (row - 2.0) / 4.0), 0.5] for row in range(10)]
    for size in (1, 3, 4, 10, 11):
        monkeypatch.setattr(scale, "STEP", size)
        got = scaler.apply(frame)
        assert got.tolist() == want
        assert got.dtype == np.float32
        assert got.flags.c_contiguous
        in_place = frame.to_numpy().astype(np.float32, order="C")
        scaler.scale(in_place)
        assert np.array_equal(in_place, got)


@pytest.mark.parametrize("keep", [[True] * 10, [False] * 3 + [True] * 5 + [False] * 2, [True, False] * 5, [False] * 10])
def test_chosen_rows_are_measured_once_whatever_the_size_of_a_block(
    keep: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    x_NF = np.array([[float(row), 0.5, np.nan] for row in range(10)], dtype=np.float32)
    known = x_NF[keep, 0].astype(np.float64)
    for size in (1, 3, 4, 10, 11):
        monkeypatch.setattr(scale, "BLOCK", size)
        mean_F, spread_F = scale.moments(scale.chosen_blocks(x_NF, np.array(keep)), 3)
        want = (known.mean(), known.std()) if known.size else (0.0, 0.0)
        assert (mean_F[0], spread_F[0]) == pytest.approx(want, rel=1e-14)
        assert mean_F[1:].tolist() == [0.5 if known.size else 0.0, 0.0]
        assert spread_F[1:].tolist() == [0.0, 0.0]


def test_both_ends_are_clipped_and_a_negative_constant_is_not_divided_by_its_rounding() -> None:
    scaler = Scaler(("a",), np.array([0.0]), np.array([1.0]), 1.5)
    assert scaler.apply(pl.DataFrame({"a": [-9.0, -1.5, 0.25, 1.5, 9.0]}))[:, 0].tolist() == [
        -1.5,
        -1.5,
        0.25,
        1.5,
        1.5,
    ]
    assert fit_scaler(pl.DataFrame({"a": [-0.1] * 1000}), ("a",), clip=6.0).scale_F[0] == 1.0
    small = fit_scaler(pl.DataFrame({"a": [1.0, 1.0 + 1e-6]}), ("a",), clip=6.0)  # a part in a million is a measurement
    assert small.scale_F[0] == pytest.approx(5e-7, rel=1e-6)
