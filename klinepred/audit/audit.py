"""In: a workspace, symbols and settings, or a trained model. Out: its `Certificate`, from what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from klinepred.audit.certify import certify
from klinepred.audit.check import Certificate, Check, judge
from klinepred.audit.columns import TOLERANCE
from klinepred.audit.depth import FAST, THOROUGH, Depth
from klinepred.audit.evidence import model_evidence, pipeline_evidence
from klinepred.audit.stages import model_stages, pipeline_stages
from klinepred.dataset.make import Dataset
from klinepred.errors import DatasetError, KlinepredError, TrainingError
from klinepred.features.spec import FeatureSet
from klinepred.model.bundle import ModelBundle
from klinepred.paths import Workspace
from klinepred.settings import DatasetSettings

KEPT: Final = "data/features of the workspace, which may be deleted at any time"


def audit_stored(
    space: Workspace,
    symbols: Sequence[str],
    *,
    features: FeatureSet,
    settings: DatasetSettings,
    fold: int = 1,
    depth: Depth = THOROUGH,
    as_of: int | None = None,
) -> Certificate:
    """Audit the steps from the stored bars of `symbols` to predictions, before any training; of one fold.

    Parameters
    ----------
    as_of
        Bars as the store was at this version; default: the newest.

    Raises
    ------
    StoreError, DatasetError, TrainingError
        Too little is stored to train on.
    """
    stages = pipeline_stages(features, settings, fold=fold)
    evidence = pipeline_evidence(space, symbols, features=features, settings=settings, rows=depth.evidence, as_of=as_of)
    try:
        return certify(stages, evidence, depth=depth)
    except (DatasetError, TrainingError):
        if len(evidence.universe) == len(symbols):
            raise
    evidence = pipeline_evidence(space, symbols, features=features, settings=settings, rows=None, as_of=as_of)
    return certify(stages, evidence, depth=depth)


def audit_before_training(space: Workspace, data: Dataset, *, as_of: int | None = None) -> Certificate:
    """A fast audit of the steps that made `data`; one that cannot be carried out has failed.

    Parameters
    ----------
    data
        What is about to be trained on: its inputs must be those that the stored bars give when computed afresh.
    as_of
        Version of the store that `data` was made from; default: the newest.

    Raises
    ------
    DatasetError, TrainingError
        Too little is stored.
    """
    try:
        features, settings = data.features, data.settings
        fold = data.split.fold
        certificate = audit_stored(
            space, data.universe, features=features, settings=settings, fold=fold, depth=FAST, as_of=as_of
        )
        return Certificate((*certificate.checks, _as_computed_afresh(space, data, as_of)))
    except (DatasetError, TrainingError):
        raise
    except KlinepredError as error:
        text = f"{error.summary}: expected {error.expected}, got {error.got}"
        return Certificate((Check("the audit can be carried out", "evidence", False, text),))


def audit_bundle(space: Workspace, bundle: ModelBundle) -> Certificate:
    """Audit a trained model on the bars it was trained on.

    Raises
    ------
    StoreError, DatasetError, ModelError
        Its bars or its features are not at hand.
    """
    asked = replace(bundle, novelty=None)  # what is compared are forecasts, of rows far from training's as well
    return certify(model_stages(bundle), model_evidence(space, bundle), bundle=asked)


def _as_computed_afresh(space: Workspace, data: Dataset, as_of: int | None) -> Check:
    """Training takes features from a cache: for some symbols they are computed again, and must agree."""
    evidence = pipeline_evidence(
        space, data.universe, features=data.features, settings=data.settings, rows=FAST.evidence, as_of=as_of
    )
    stages = pipeline_stages(data.features, data.settings)
    fresh = stages.features(evidence.bars, evidence.universe, pl.Float32())
    names = [one.name for one in data.features.features if one.family != "cross" or evidence.universe == data.universe]
    some_N = data.rows.get_column("symbol").is_in(list(evidence.universe))
    rows = data.rows.filter(some_N).select("symbol", "ts")
    x_NF = data.scaler.apply(rows.join(fresh, on=["symbol", "ts"], how="left", maintain_order="left"))
    faults = []
    for index, name in enumerate(data.scaler.names):
        kept_N, fresh_N = data.x_NF[some_N.to_numpy(), index], x_NF[:, index]
        level = data.scaler.centre_F[index] / data.scaler.scale_F[index]
        off_N = np.abs(kept_N - fresh_N) > TOLERANCE * np.maximum(1.0, np.abs(fresh_N + level))
        if name in names and off_N.any():
            symbol, ts = rows.row(int(np.flatnonzero(off_N)[0]))
            faults.append(f"{name}: {int(off_N.sum()):,} rows, first {symbol} {ts:%Y-%m-%dT%H:%MZ}, as kept in {KEPT}")
    detail = f"{rows.height:,} rows x {len(names)} features"
    return judge("what is trained on is what the stored bars give", "inputs", faults=faults, detail=detail)
