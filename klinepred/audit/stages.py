"""In: a pipeline, or a trained model. Out: `Stages`: its steps as callables, which checks can feed as they like."""

# Shapes: N rows, L labelled rows of one pass over the train part.

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np
import polars as pl
import torch

from klinepred.dataset.make import Dataset, make_dataset
from klinepred.features.build import FeatureFrame, compute_features
from klinepred.features.spec import FeatureSet
from klinepred.model.bundle import ModelBundle, features_of
from klinepred.model.calibration import Calibration
from klinepred.model.lstm import Network, build_network
from klinepred.prediction import forecast
from klinepred.schema import BAR, CALENDAR, Bars
from klinepred.settings import DatasetSettings, ModelSettings
from klinepred.training.outcome import calibrate
from klinepred.training.rows import TrainRows
from klinepred.training.validation import validate

SMALL: Final = ModelSettings(preset="lstm-small", hidden=16, layers=3, head=8, dropout=0.1)
"""The network of random weights that an audit before training sends through the pipeline."""

Span = tuple[datetime, datetime]
BuildFeatures = Callable[[pl.DataFrame, tuple[str, ...], pl.DataType], pl.DataFrame]
BuildDataset = Callable[[FeatureFrame], Dataset]
MakeNetwork = Callable[[int], Network]
ReadLabels = Callable[[Dataset], np.ndarray]
Grade = Callable[[Network, Dataset], float]
Calibrate = Callable[[Network, Dataset], Calibration]
Predict = Callable[[ModelBundle, pl.DataFrame, datetime | None, Span | None], pl.DataFrame]


@dataclass(frozen=True)
class Stages:
    """The steps from bars to predictions. Checks know nothing of what is behind them.

    Attributes
    ----------
    features
        (bars, universe, dtype) to symbol, ts, close, then the set's columns, sorted by symbol and ts.
    dataset
        Features to targets, parts, scaled inputs and sequences.
    network
        Number of inputs to a network, the same weights every time.
    labels
        All labels [L] that one epoch of training learns from.
    grade
        The validation loss, by which the best epoch is chosen.
    calibrate
        Interval and probability.
    predict
        (bundle, bars, as_of, span) to one row per symbol and bar: symbol, bar_ts, expected_return_bps, p_up,
        lo80_bps, hi80_bps. Without `as_of` and `span`: of the newest bars.
    """

    features: BuildFeatures
    dataset: BuildDataset
    network: MakeNetwork
    labels: ReadLabels
    grade: Grade
    calibrate: Calibrate
    predict: Predict


@dataclass(frozen=True)
class Evidence:
    """What an audit feeds to the stages.

    Attributes
    ----------
    bars
        `Bars`, collected: all stored bars of `universe`.
    about
        In words, where they come from.
    """

    bars: pl.DataFrame
    universe: tuple[str, ...]
    features: FeatureSet
    settings: DatasetSettings
    about: str

    @property
    def calendars(self) -> dict[str, str]:
        """By symbol, the text of its `Clock`."""
        return calendars_of(self.bars)


def calendars_of(bars: pl.DataFrame) -> dict[str, str]:
    """By symbol, the text of its `Clock`, sorted by symbol."""
    pairs = bars.select("symbol", pl.col(CALENDAR).cast(pl.String)).unique().sort("symbol")
    return {str(symbol): str(text) for symbol, text in pairs.iter_rows()}


def pipeline_stages(features: FeatureSet, settings: DatasetSettings, *, fold: int = 1, seed: int = 7) -> Stages:
    """The product's own steps before any training (of one fold), with a small network of seeded random weights."""
    return _own(features, lambda table: make_dataset(table, settings, fold=fold), seed=seed)


def model_stages(bundle: ModelBundle, *, seed: int = 7) -> Stages:
    """The steps by which a trained model is evaluated and asked: its own features, scaler and split.

    Raises
    ------
    ModelError
        This version of klinepred does not compute the features of the model.
    """

    def dataset(table: FeatureFrame) -> Dataset:
        return make_dataset(table, bundle.dataset, scaler=bundle.scaler, split=bundle.split)

    return _own(features_of(bundle), dataset, seed=seed)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread: for a network this small the others would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _own(features: FeatureSet, dataset: BuildDataset, *, seed: int) -> Stages:
    def build(bars: pl.DataFrame, universe: tuple[str, ...], dtype: pl.DataType) -> pl.DataFrame:
        return compute_features(bars, features, universe=universe, dtype=dtype)

    def network(inputs: int) -> Network:
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            return build_network(SMALL, inputs=inputs).eval()

    return Stages(
        features=build,
        dataset=dataset,
        network=network,
        labels=_labels,
        grade=lambda network, data: validate(network, data, kind="mse", device=torch.device("cpu")).loss,
        calibrate=_calibrate,
        predict=_predict,
    )


def _labels(data: Dataset) -> np.ndarray:
    rows = TrainRows(data, device=torch.device("cpu"), size=64, seed=0)
    return np.concatenate([y_BT[labelled_BT].numpy() for (_, y_BT, labelled_BT), _ in rows.epoch(0)])


def _calibrate(network: Network, data: Dataset) -> Calibration:
    return calibrate(network, data, device=torch.device("cpu"))


def _predict(bundle: ModelBundle, bars: pl.DataFrame, as_of: datetime | None, span: Span | None) -> pl.DataFrame:
    now = bars.get_column("ts").max()
    return forecast(bundle, Bars(bars.lazy()), as_of=as_of, span=span, now=now + BAR).rows  # type: ignore[arg-type,operator]


def table_of(stages: Stages, evidence: Evidence, bars: pl.DataFrame) -> FeatureFrame:
    """The features of `bars` as the dataset takes them."""
    frame = stages.features(bars, evidence.universe, pl.Float32())
    return FeatureFrame(frame, evidence.features, evidence.universe, calendars_of(bars))


def untrained(stages: Stages, data: Dataset) -> ModelBundle:
    """A bundle around the network of random weights."""
    network = stages.network(data.x_NF.shape[1])
    return ModelBundle(
        network=network,
        model=SMALL,
        dataset=data.settings,
        feature_set=data.features.name,
        feature_names=data.features.names,
        fingerprint=data.features.fingerprint,
        universe=data.universe,
        calendars=data.calendars,
        scaler=data.scaler,
        split=data.split,
        calibration=stages.calibrate(network, data),
        recipe=data.features.recipe,
        marks=data.features.marks,
        pipeline={},
        provenance={},
        name="audit",
    )
