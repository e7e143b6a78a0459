"""In: attribute names. Out: the Python calls of klinepred, each imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Workspace": "klinepred.paths",
    "Clock": "klinepred.calendar",
    "KlinepredError": "klinepred.errors",
    "Pipeline": "klinepred.settings",
    "load_pipeline": "klinepred.config",
    "ingest": "klinepred.bars.ingest",
    "scan_bars": "klinepred.bars.store",
    "check_bars": "klinepred.bars.check",
    "F50": "klinepred.features.build",
    "build_features": "klinepred.features.build",
    "make_dataset": "klinepred.dataset.make",
    "load_bundle": "klinepred.model.bundle",
    "train": "klinepred.training.loop",
    "MlflowTracker": "klinepred.training.tracking",
    "evaluate": "klinepred.evaluation.verdict",
    "predict": "klinepred.prediction",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'klinepred' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
