"""In: trained tiny networks. Out: the finished network's size is its slope on validation, its order as before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from klinepred.model.bundle import ModelBundle
from klinepred.model.ensemble import members_of
from klinepred.model.forward import forward_rows
from klinepred.settings import TrainSettings
from klinepred.training.loop import train
from klinepred.training.recalibration import LEAST, MOST, recalibrate
from tests.training.tiny import MODEL, TRAIN, Memory, fit, tiny_dataset

CPU = torch.device("cpu")
LONG = TRAIN.model_copy(update={"epochs": 20})
SCALED = LONG.model_copy(update={"recalibrate": True})


def forecasts(bundle: ModelBundle) -> np.ndarray:
    data = tiny_dataset()
    return forward_rows(bundle.network, data.x_NF, data.sequences).astype(np.float64)


def slope_by_hand(bundle: ModelBundle) -> float:
    """Sum of forecast times label over sum of squared forecasts, less the share that chance explains, by time."""
    data, pred_N = tiny_dataset(), forecasts(bundle)
    rows = [
        (stamp, pred, min(max(float(label), -6.0), 6.0))
        for stamp, pred, label, here in zip(
            data.rows["ts"].to_list(), pred_N, data.y_N, data.mask("validation"), strict=True
        )
        if here
    ]
    power = sum(pred**2 for _, pred, _ in rows)
    slope = sum(pred * label for _, pred, label in rows) / power
    scores: dict[object, float] = {}
    for stamp, pred, label in rows:
        scores[stamp] = scores.get(stamp, 0.0) + pred * (label - slope * pred)
    return float(slope - sum(value**2 for value in scores.values()) / power**2 / slope)


def test_the_forecast_is_scaled_by_its_slope_on_validation_and_the_record_says_by_how_much() -> None:
    plain, tracker = fit(tiny_dataset(), LONG), Memory()
    scaled = fit(tiny_dataset(), SCALED, tracker=tracker)
    factor = scaled.provenance["recalibration"]
    assert factor == pytest.approx(slope_by_hand(plain), rel=1e-4)
    assert factor != pytest.approx(1.0, abs=0.01)
    np.testing.assert_allclose(forecasts(scaled), factor * forecasts(plain), rtol=1e-4, atol=1e-7)
    assert "recalibration" not in plain.provenance
    assert tracker.series("recalibration") == [pytest.approx(factor)]


def test_a_network_without_skill_expects_next_to_nothing_and_still_ranks() -> None:
    data = tiny_dataset()
    bundle = fit(data)
    before = forecasts(bundle)
    wrong = replace(data, y_N=-data.y_N)
    assert recalibrate(bundle.network, wrong, device=CPU) == LEAST
    after = forecasts(bundle)
    np.testing.assert_allclose(after, LEAST * before, rtol=1e-4, atol=1e-7)
    assert np.corrcoef(after, before)[0, 1] == pytest.approx(1.0)


def test_a_forecast_that_is_far_too_small_is_at_most_doubled() -> None:
    data = tiny_dataset()
    bundle = fit(data)
    loud = replace(data, y_N=50 * data.y_N, settings=data.settings.model_copy(update={"label_clip": 500.0}))
    assert recalibrate(bundle.network, loud, device=CPU) == MOST


def test_only_the_validation_part_is_read() -> None:
    data = tiny_dataset()
    x_NF, y_N = data.x_NF.copy(), data.y_N.copy()
    later = np.isin(data.rows["session"].to_numpy(), np.unique(data.rows["session"].to_numpy())[15:])
    x_NF[later], y_N[later & ~np.isnan(y_N)] = 3.0, 4.0
    other = replace(data, x_NF=x_NF, y_N=y_N)
    one, two = fit(data), fit(data)
    assert recalibrate(one.network, data, device=CPU) == recalibrate(two.network, other, device=CPU)


def test_the_mean_of_an_ensemble_is_scaled_as_one() -> None:
    both = SCALED.model_copy(update={"ensemble": 2})
    bundle = fit(tiny_dataset(), both)
    assert len(members_of(bundle.network)) == 2
    again = recalibrate(bundle.network, tiny_dataset(), device=CPU)
    # slope b, and k of it left after chance: factor b k. The scaled mean has slope 1 / k and the same k, so again 1
    assert again == pytest.approx(1.0, abs=1e-5)


def test_a_skip_path_is_scaled_with_the_rest() -> None:
    model = MODEL.model_copy(update={"skip": True})
    plain = train(tiny_dataset(), model, LONG)
    scaled = train(tiny_dataset(), model, SCALED)
    factor = scaled.provenance["recalibration"]
    np.testing.assert_allclose(forecasts(scaled), factor * forecasts(plain), rtol=1e-4, atol=1e-7)


def test_it_is_off_unless_asked_for() -> None:
    assert TrainSettings().recalibrate is False
