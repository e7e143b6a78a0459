"""In: nothing. Out: a small dataset with a learnable signal, and settings to train on it in a second."""

# Shapes: N rows, F features.

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from klinepred.dataset.make import Dataset
from klinepred.dataset.scale import Scaler
from klinepred.dataset.sequences import cut_sequences
from klinepred.dataset.split import Split
from klinepred.features.build import F50
from klinepred.model.bundle import ModelBundle
from klinepred.settings import DatasetSettings, ModelSettings, Pipeline, TrainSettings
from klinepred.training.loop import train
from klinepred.training.progress import EpochNews, StepNews
from klinepred.training.tracker import Metric, NoTracker, RunStatus

SYMBOLS = 6
SESSIONS = 20
BARS = 12
MODEL = ModelSettings(preset="lstm-small", hidden=8, layers=2, head=4, dropout=0.1)
TRAIN = TrainSettings(epochs=3, batch=10, lr=1e-2, ema=0.9, patience=0, log_every=1, device="cpu")


def tiny_dataset(*, seed: int = 0, symbols: int = SYMBOLS) -> Dataset:
    """Sessions 0-11 train, 12-14 validation, 15-16 calibration, 17-19 test; the last bar of each has no label."""
    rng = np.random.default_rng(seed)
    symbol_N = np.repeat(np.arange(symbols), SESSIONS * BARS)
    session_N = np.tile(np.repeat(np.arange(SESSIONS), BARS), symbols)
    bar_N = np.tile(np.arange(BARS), symbols * SESSIONS)
    x_NF = rng.normal(size=(symbol_N.size, len(F50.names))).astype(np.float32)
    y_N = (x_NF[:, 0] + rng.normal(size=symbol_N.size)).astype(np.float32)
    y_N[bar_N == BARS - 1] = np.nan
    part_N = np.digitize(session_N, [12, 15, 17]).astype(np.int8)
    part_N[np.isnan(y_N)] = -1
    first = datetime(2026, 1, 5, 14, 30, tzinfo=UTC)
    stamps = [first + timedelta(days=int(d), minutes=5 * int(b)) for d, b in zip(session_N, bar_N, strict=True)]
    settings = DatasetSettings()
    return Dataset(
        x_NF=x_NF,
        y_N=y_N,
        raw_N=y_N.copy(),
        return_N=(y_N * 1e-3).astype(np.float64),
        vol_N=np.full(symbol_N.size, 1e-3, dtype=np.float32),
        kind_N=np.zeros(symbol_N.size, dtype=np.int8),
        part_N=part_N,
        rows=pl.DataFrame({"symbol": [f"S{s}" for s in symbol_N], "ts": stamps, "close": 1.0}).with_columns(
            session=pl.col("ts").dt.date()
        ),
        sequences=cut_sequences(symbol_N, session_N * 1000 + bar_N, session_N, settings),
        scaler=Scaler(tuple(F50.names), np.zeros(x_NF.shape[1]), np.ones(x_NF.shape[1]), 6.0),
        split=Split(date(2026, 1, 16), date(2026, 1, 19), date(2026, 1, 21)),
        features=F50,
        universe=tuple(f"S{s}" for s in range(symbols)),
        calendars={f"S{s}": "24/7" for s in range(symbols)},
        settings=settings,
        lacking={},
    )


def tiny_pipeline(train: TrainSettings = TRAIN, *, name: str = "tiny", symbols: tuple[str, ...] = ()) -> Pipeline:
    """The pipeline these settings belong to."""
    run = Pipeline.model_validate({"name": name, "data": {"source": "simulate", "symbols": symbols}})
    return run.model_copy(update={"model": MODEL, "train": train})


def fit(data: Dataset, settings: TrainSettings = TRAIN, **options: Any) -> ModelBundle:
    """Train the tiny network."""
    return train(data, MODEL, settings, **options)


def weights(bundle: ModelBundle) -> dict[str, torch.Tensor]:
    """Weights of the bundle's network."""
    return dict(bundle.network.state_dict())


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Whether all weights are the same, bit for bit."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


class Memory(NoTracker):
    """A tracker that remembers."""

    def __init__(self) -> None:
        self.metrics: list[Metric] = []
        self.calls: list[int] = []
        self.status: RunStatus | None = None
        self.folders: dict[str, list[str]] = {}
        self.tags: dict[str, str] = {}

    def set_tags(self, tags: Mapping[str, str]) -> None:
        self.tags |= tags

    def log_metrics(self, metrics: Any) -> None:
        self.calls.append(len(metrics))
        self.metrics += metrics

    def log_folder(self, folder: Path, *, under: str) -> None:
        self.folders[under] = sorted(path.name for path in folder.iterdir())

    def log_model(self, bundle: ModelBundle, folder: Path) -> None:
        self.folders["model"] = sorted(path.name for path in folder.iterdir())

    def end(self, status: RunStatus) -> None:
        self.status = status

    def series(self, name: str) -> list[float]:
        """Values of a metric in order."""
        return [metric.value for metric in self.metrics if metric.name == name]


class Diary:
    """A progress that remembers, and may do something at a step."""

    def __init__(self, *, at_step: int = -1, then: Any = None) -> None:
        self.steps: list[StepNews] = []
        self.epochs: list[EpochNews] = []
        self.begun = (-1, -1)
        self.ended = 0
        self._at, self._then = at_step, then

    def begin(self, *, steps: int, done: int) -> None:
        self.begun = (steps, done)

    def step(self, news: StepNews) -> None:
        self.steps.append(news)
        if news.step == self._at:
            self._then()

    def epoch(self, news: EpochNews) -> None:
        self.epochs.append(news)

    def end(self) -> None:
        self.ended += 1
