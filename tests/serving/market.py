"""In: nothing. Out: a workspace with a small simulated store, a model of random weights on its shelf and in MLflow."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np

import klinepred as kp
from klinepred.dataset.scale import Scaler
from klinepred.dataset.split import Split
from klinepred.model.bundle import ModelBundle, save_bundle
from klinepred.model.lstm import build_network
from klinepred.training.outcome import hand_over
from klinepred.training.tracking import MlflowTracker
from tests.model.bundles import small_bundle

NOW = "2026-04-30T22:00:00Z"
SYMBOLS = ("SIM001", "SIM002", "SIM003")


def open_market(root: Path) -> tuple[kp.Workspace, ModelBundle]:
    """Thirty sessions of three symbols; the model has a finished run and lies on the shelf under its run's name."""
    space = kp.Workspace(root)
    overrides = ["data.simulate.symbols=3", "data.simulate.start=2026-03-18", "data.simulate.end=2026-04-30"]
    run = kp.load_pipeline("demo", overrides=overrides)
    kp.ingest(run.data, space)
    tracker = MlflowTracker(space, run)
    origin = tracker.start(run, params={}, tags={"leak_certificate": "passed"}, resume=None)
    bundle = random_bundle(run, {**origin, "created": "2026-05-01T00:00:00Z", "leak_certificate": "passed"})
    hand_over(bundle, tracker)
    tracker.end("FINISHED")
    save_bundle(bundle, space.trained / bundle.name)
    return space, bundle


def random_bundle(run: kp.Pipeline, provenance: dict[str, object], *, seed: int = 0) -> ModelBundle:
    """A network of random weights behind the 50 features and a plain scaler."""
    names = tuple(kp.F50.names)
    base = small_bundle(features=names, seed=seed)
    bundle = replace(
        base,
        network=build_network(base.model, inputs=len(names)).eval(),
        feature_set=kp.F50.name,
        fingerprint=kp.F50.fingerprint,
        marks=dict(kp.F50.marks),
        universe=SYMBOLS,
        calendars=dict.fromkeys(SYMBOLS, "XNYS"),
        scaler=Scaler(names, np.zeros(len(names)), np.ones(len(names)), 6.0),
        split=Split(date(2026, 4, 20), date(2026, 4, 22), date(2026, 4, 24)),
        pipeline=run.model_dump(mode="json"),
        provenance=provenance,
    )
    from klinepred.model.shelf import shelf_name

    return replace(bundle, name=shelf_name(bundle))
