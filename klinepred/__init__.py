"""In: attribute names. Out: the Python calls of klinepred, each imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from klinepred.bars.check import check_bars
    from klinepred.bars.ingest import ingest
    from klinepred.bars.store import scan_bars
    from klinepred.calendar import Clock
    from klinepred.config import load_pipeline
    from klinepred.dataset.make import make_dataset
    from klinepred.errors import KlinepredError
    from klinepred.evaluation.verdict import evaluate
    from klinepred.features.build import F50, build_features
    from klinepred.features.custom import features_for
    from klinepred.model.bundle import load_bundle, save_bundle
    from klinepred.paths import Workspace
    from klinepred.prediction import predict
    from klinepred.settings import Pipeline
    from klinepred.training.loop import train
    from klinepred.training.tracking import MlflowTracker

__all__ = [
    "F50",
    "Clock",
    "KlinepredError",
    "MlflowTracker",
    "Pipeline",
    "Workspace",
    "__version__",
    "build_features",
    "check_bars",
    "evaluate",
    "features_for",
    "ingest",
    "load_bundle",
    "load_pipeline",
    "make_dataset",
    "predict",
    "save_bundle",
    "scan_bars",
    "train",
]

# Where each name lives. Type checkers read the imports above instead; a test holds the two lists equal.
_HOMES = {
    "F50": "klinepred.features.build",
    "Clock": "klinepred.calendar",
    "KlinepredError": "klinepred.errors",
    "MlflowTracker": "klinepred.training.tracking",
    "Pipeline": "klinepred.settings",
    "Workspace": "klinepred.paths",
    "build_features": "klinepred.features.build",
    "check_bars": "klinepred.bars.check",
    "evaluate": "klinepred.evaluation.verdict",
    "features_for": "klinepred.features.custom",
    "ingest": "klinepred.bars.ingest",
    "load_bundle": "klinepred.model.bundle",
    "load_pipeline": "klinepred.config",
    "make_dataset": "klinepred.dataset.make",
    "predict": "klinepred.prediction",
    "save_bundle": "klinepred.model.bundle",
    "scan_bars": "klinepred.bars.store",
    "train": "klinepred.training.loop",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'klinepred' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
