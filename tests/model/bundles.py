"""In: nothing. Out: a small bundle with random weights, for tests."""

from __future__ import annotations

from datetime import date

import numpy as np
import torch

from klinepred.dataset.scale import Scaler
from klinepred.dataset.split import Split
from klinepred.model.bundle import ModelBundle
from klinepred.model.calibration import fit_calibration
from klinepred.model.lstm import build_network
from klinepred.settings import DatasetSettings, ModelSettings


def small_bundle(*, features: tuple[str, ...] = ("a", "b", "c"), seed: int = 0) -> ModelBundle:
    """Hidden 8, one layer, random weights."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    settings = ModelSettings(preset="lstm-small", hidden=8, layers=1, head=4, dropout=0.0)
    every = np.ones(300, dtype=bool)
    return ModelBundle(
        network=build_network(settings, inputs=len(features)).eval(),
        model=settings,
        dataset=DatasetSettings(),
        feature_set="f50",
        feature_names=features,
        fingerprint="0" * 16,
        universe=("AAA", "BBB"),
        calendars={"AAA": "XNYS", "BBB": "XNYS"},
        scaler=Scaler(features, rng.normal(size=len(features)), np.ones(len(features)), 6.0),
        split=Split(date(2026, 1, 5), date(2026, 1, 6), date(2026, 1, 7)),
        calibration=fit_calibration(
            rng.normal(size=300),
            rng.normal(size=300),
            np.zeros(300),
            time_N=np.arange(300),
            held=every,
            spare=~every,
            train=~every,
        ),
        pipeline={"name": "demo"},
        provenance={"run_id": "abc", "created": "2026-01-08T00:00:00Z"},
    )
