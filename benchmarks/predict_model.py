"""In: symbols, the name of a preset. Out: a model of that shape with random weights, on the shelf of a workspace."""

from __future__ import annotations

from datetime import date

import numpy as np
import torch

from klinepred.config import load_pipeline
from klinepred.dataset.scale import Scaler
from klinepred.dataset.split import Split
from klinepred.features.build import F50
from klinepred.model.bundle import ModelBundle, load_bundle, save_bundle
from klinepred.model.calibration import fit_calibration
from klinepred.model.lstm import build_network
from klinepred.paths import Workspace


def shelve_model(space: Workspace, *, symbols: tuple[str, ...], preset: str) -> ModelBundle:
    """As `klinepred train` would leave it, untrained; what a prediction costs does not depend on the weights."""
    run = load_pipeline("demo", overrides=[f'model.preset="{preset}"'])
    torch.manual_seed(0)
    chance = np.random.default_rng(0)
    every = np.ones(400, dtype=bool)
    bundle = ModelBundle(
        network=build_network(run.model, inputs=len(F50.names)).eval(),
        model=run.model,
        dataset=run.dataset,
        feature_set=F50.name,
        feature_names=F50.names,
        fingerprint=F50.fingerprint,
        universe=symbols,
        calendars=dict.fromkeys(symbols, "XNYS"),
        scaler=Scaler(F50.names, np.zeros(len(F50.names)), np.ones(len(F50.names)), 6.0),
        split=Split(date(2026, 4, 20), date(2026, 4, 22), date(2026, 4, 24)),
        calibration=fit_calibration(
            chance.normal(size=400),
            chance.normal(size=400),
            np.zeros(400),
            time_N=np.arange(400),
            held=every,
            spare=~every,
            train=~every,
        ),
        pipeline=run.model_dump(mode="json"),
        provenance={"run_id": "", "created": "2026-05-01T00:00:00Z", "leak_certificate": "passed"},
        marks=F50.marks,
    )
    return load_bundle(save_bundle(bundle, space.trained / f"demo-{preset}"))
