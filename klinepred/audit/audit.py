"""In: a workspace, symbols and settings, or a trained model. Out: its `Certificate`, from what is stored."""

from __future__ import annotations

from collections.abc import Sequence

from klinepred.audit.certify import certify
from klinepred.audit.check import Certificate, Check
from klinepred.audit.depth import FAST, THOROUGH, Depth
from klinepred.audit.evidence import model_evidence, pipeline_evidence
from klinepred.audit.stages import model_stages, pipeline_stages
from klinepred.errors import DatasetError, KlinepredError, TrainingError
from klinepred.features.spec import FeatureSet
from klinepred.model.bundle import ModelBundle
from klinepred.paths import Workspace
from klinepred.settings import DatasetSettings


def audit_stored(
    space: Workspace,
    symbols: Sequence[str],
    *,
    features: FeatureSet,
    settings: DatasetSettings,
    depth: Depth = THOROUGH,
) -> Certificate:
    """Audit the steps from the stored bars of `symbols` to predictions, before any training.

    Raises
    ------
    StoreError, DatasetError, TrainingError
        Too little is stored to train on.
    """
    stages = pipeline_stages(features, settings)
    evidence = pipeline_evidence(space, symbols, features=features, settings=settings, rows=depth.evidence)
    try:
        return certify(stages, evidence, depth=depth)
    except (DatasetError, TrainingError):
        if len(evidence.universe) == len(symbols):
            raise
    evidence = pipeline_evidence(space, symbols, features=features, settings=settings, rows=None)
    return certify(stages, evidence, depth=depth)


def audit_before_training(
    space: Workspace, symbols: Sequence[str], *, features: FeatureSet, settings: DatasetSettings
) -> Certificate:
    """A fast audit; one that cannot be carried out has failed, unless the bars are too few to train on anyway.

    Raises
    ------
    DatasetError, TrainingError
        Too little is stored.
    """
    try:
        return audit_stored(space, symbols, features=features, settings=settings, depth=FAST)
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
    return certify(model_stages(bundle), model_evidence(space, bundle), bundle=bundle)
