"""In: symbols and their calendars. Out: bars of a random walk, and a model of random weights that can be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import polars as pl
import torch

import klinepred as kp
from klinepred.bars.check import check_bars
from klinepred.calendar import Clock
from klinepred.dataset.scale import Scaler
from klinepred.dataset.split import Split
from klinepred.features.spec import FeatureSet
from klinepred.model.bundle import ModelBundle
from klinepred.model.calibration import Calibration, fit_calibration
from klinepred.model.lstm import build_network
from klinepred.schema import Bars
from klinepred.settings import DatasetSettings, ModelSettings
from tests.bars.made import walk
from tests.model.bundles import small_bundle

SPLIT = Split(date(2026, 4, 30), date(2026, 5, 6), date(2026, 5, 8))


def walked(clocks: Mapping[str, str], *, start: str = "2026-04-20", days: int = 60, seed: int = 1) -> Bars:
    """Every bar of each symbol's calendar."""
    parts = []
    for number, (symbol, text) in enumerate(sorted(clocks.items())):
        frame = walk([symbol], start=start, days=days, seed=seed + number, clock=Clock.parse(text))
        parts.append(
            check_bars(frame, clock=Clock.parse(text)).collect().with_columns(pl.col("calendar").cast(pl.String))
        )
    return check_bars(pl.concat(parts).sort("symbol", "ts"))


def asked_bundle(
    clocks: Mapping[str, str], *, features: FeatureSet = kp.F50, seed: int = 0, **dataset: Any
) -> ModelBundle:
    """A network of random weights over the set's features, a scaler of 1, the universe `clocks`."""
    torch.manual_seed(seed)
    settings = ModelSettings(preset="lstm-small", hidden=8, layers=2, head=4, dropout=0.0)
    names = features.names
    return replace(
        small_bundle(features=names),
        network=build_network(settings, inputs=len(names)).eval(),
        model=settings,
        dataset=DatasetSettings(**{"target": "raw", **dataset}),
        feature_set=features.name,
        recipe=features.recipe,
        fingerprint=features.fingerprint,
        marks=dict(features.marks),
        universe=tuple(sorted(clocks)),
        calendars=dict(clocks),
        scaler=Scaler(names, np.zeros(len(names)), np.ones(len(names)), 6.0),
        split=SPLIT,
        calibration=_calibration(),
        name="asked",
    )


def _calibration() -> Calibration:
    """Of both kinds of step."""
    rng, every = np.random.default_rng(0), np.ones(600, dtype=bool)
    pred_N, raw_N = rng.normal(size=(2, 600))
    return fit_calibration(
        pred_N, raw_N, np.repeat([0, 1], 300), time_N=np.arange(600), held=every, spare=~every, train=~every
    )
