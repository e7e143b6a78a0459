"""In: sound stages. Out: the same with one leak each: in what is learned, chosen, calibrated, in how it predicts."""

# None of this is ever used: `klinepred audit --self-test` plants it to see whether the checks find it.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Final

import numpy as np
import polars as pl
import torch

from klinepred.audit.stages import SMALL, Span, Stages
from klinepred.dataset.make import Dataset
from klinepred.dataset.scale import fit_scaler
from klinepred.dataset.split import CALIBRATION, TEST, TRAIN, VALIDATION
from klinepred.features.build import build_features
from klinepred.model.bundle import ModelBundle, features_of
from klinepred.model.calibration import Calibration
from klinepred.model.lstm import Network
from klinepred.schema import BAR

Spoil = Callable[[Stages], Stages]


def _as_part(data: Dataset, *, part: int, said: int) -> Dataset:
    """The rows of one part pass for those of another."""
    return replace(data, part_N=np.where(data.part_N == part, said, data.part_N).astype(np.int8))


def _trained_on_validation(stages: Stages) -> Stages:
    return replace(stages, labels=lambda data: stages.labels(_as_part(data, part=VALIDATION, said=TRAIN)))


def _chosen_on_test(stages: Stages) -> Stages:
    return replace(stages, grade=lambda net, data: stages.grade(net, _as_part(data, part=TEST, said=VALIDATION)))


def _calibrated_on(part: int) -> Spoil:
    def spoil(stages: Stages) -> Stages:
        def calibrate(network: Network, data: Dataset) -> Calibration:
            return stages.calibrate(network, _as_part(data, part=part, said=CALIBRATION))

        return replace(stages, calibrate=calibrate)

    return spoil


def _one_bar_too_many(stages: Stages) -> Stages:
    def predict(bundle: ModelBundle, bars: pl.DataFrame, as_of: datetime | None, span: Span | None) -> pl.DataFrame:
        return stages.predict(bundle, bars, None if as_of is None else as_of + BAR, span)

    return replace(stages, predict=predict)


def _clock_ignored(stages: Stages) -> Stages:
    return replace(stages, predict=lambda bundle, bars, _, span: stages.predict(bundle, bars, None, span))


def _scaled_by_what_is_there(stages: Stages) -> Stages:
    """Inputs scaled anew by all rows at hand."""

    def predict(bundle: ModelBundle, bars: pl.DataFrame, as_of: datetime | None, span: Span | None) -> pl.DataFrame:
        rows = build_features(bars, features_of(bundle), universe=bundle.universe).frame
        scaler = fit_scaler(rows, bundle.scaler.names, clip=bundle.scaler.clip)
        return stages.predict(replace(bundle, scaler=scaler), bars, as_of, span)

    return replace(stages, predict=predict)


def _centred_by_what_is_there(stages: Stages) -> Stages:
    """Forecasts minus their mean over the frame they come in."""

    def predict(bundle: ModelBundle, bars: pl.DataFrame, as_of: datetime | None, span: Span | None) -> pl.DataFrame:
        rows = stages.predict(bundle, bars, as_of, span)
        return rows.with_columns(pl.col("expected_return_bps") - pl.col("expected_return_bps").mean())

    return replace(stages, predict=predict)


class _TwoWay(Network):
    """Reads each sequence from its end as well."""

    def forward(self, x_BTF: torch.Tensor) -> torch.Tensor:
        return super().forward(x_BTF) + super().forward(x_BTF.flip(1)).flip(1)


class _Levelled(Network):
    """Inputs minus their mean over the whole sequence, as normalising an instance does."""

    def forward(self, x_BTF: torch.Tensor) -> torch.Tensor:
        return super().forward(x_BTF - x_BTF.mean(dim=1, keepdim=True))


def _with_network(kind: type[Network]) -> Spoil:
    def spoil(stages: Stages) -> Stages:
        def network(inputs: int) -> Network:
            with torch.random.fork_rng([]):
                torch.manual_seed(0)
                return kind(SMALL, inputs=inputs).eval()

        return replace(stages, network=network)

    return spoil


LEAKY_TRAINING: Final[dict[str, Spoil]] = {
    "validation rows trained on": _trained_on_validation,
    "best epoch chosen on test": _chosen_on_test,
    "validation rows used for the calibration": _calibrated_on(VALIDATION),
    "test rows used for the calibration": _calibrated_on(TEST),
}
LEAKY_PREDICTIONS: Final[dict[str, Spoil]] = {
    "predicts with one bar too many": _one_bar_too_many,
    "predicts from all there is, as-of ignored": _clock_ignored,
    "inputs scaled by all rows at hand": _scaled_by_what_is_there,
    "forecasts centred over the span they come in": _centred_by_what_is_there,
    "a network that reads both ways": _with_network(_TwoWay),
    "a network that levels whole sequences": _with_network(_Levelled),
}
"""By what is wrong."""
