"""In: a pipeline and a workspace. Out: its audit, its check of precisions, its training; each can be run alone."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from klinepred.paths import Workspace
from klinepred.pipeline.data import build_dataset
from klinepred.pipeline.symbols import choose_symbols
from klinepred.settings import Pipeline

if TYPE_CHECKING:
    from klinepred.audit.check import Certificate
    from klinepred.dataset.make import Dataset
    from klinepred.model.bundle import ModelBundle
    from klinepred.training.progress import Progress
    from klinepred.trial.report import TrialReport

log = logging.getLogger("klinepred.pipeline")


@dataclass(frozen=True)
class Trained:
    """A finished training: the bundle, where it lies, and the dataset it learned from."""

    bundle: ModelBundle
    folder: Path
    data: Dataset


def train_model(
    run: Pipeline,
    space: Workspace,
    *,
    progress: Progress | None = None,
    resume: str | None = None,
    allow_leaks: bool = False,
) -> Trained:
    """Audit, train, log the run to MLflow with its leak certificate, put the bundle on the workspace's shelf.

    Parameters
    ----------
    allow_leaks
        Train although the leak certificate has failed; run and bundle say so for ever.

    Raises
    ------
    StoreError, DatasetError, TrainingError
        See `build_dataset` and `klinepred.training.loop.train`; or the leak certificate has failed.
    """
    from klinepred.audit.audit import audit_before_training
    from klinepred.audit.mark import CertifiedTracker, refuse_leaks
    from klinepred.model.bundle import save_bundle
    from klinepred.training.checkpoint import find_checkpoint
    from klinepred.training.loop import train
    from klinepred.training.signals import StopRequest
    from klinepred.training.tracking import MlflowTracker
    from klinepred.trial.passes import untried

    checkpoint = find_checkpoint(space, resume) if resume else None
    mlflow = MlflowTracker(space, run)
    data = build_dataset(run, space)
    certificate = audit_before_training(space, data)
    if not allow_leaks:
        refuse_leaks(certificate, pipeline=run.name)
    if checkpoint is None and (line := untried(space, run, data)):
        log.warning("%s", line)
    tracker = CertifiedTracker(mlflow, certificate, space=space)
    with StopRequest():  # a signal after the last step waits until the finished model lies on the shelf
        bundle = train(data, run.model, run.train, tracker=tracker, progress=progress, resume=checkpoint)
        stamp = str(bundle.provenance["created"]).translate({ord("-"): None, ord(":"): None})
        name = f"{run.name}-{stamp}-{bundle.run_id[:8]}"
        folder = save_bundle(replace(bundle, name=name), space.trained / name)
    return Trained(replace(bundle, name=name), folder, data)


def try_precisions(run: Pipeline, space: Workspace, *, steps: int, progress: Progress | None = None) -> TrialReport:
    """Train a little in every precision, log it to MLflow, and keep what has passed for the next training.

    Raises
    ------
    StoreError, DatasetError, TrainingError, UsageError
        See `build_dataset` and `klinepred.trial.check.check_precisions`.
    """
    from klinepred.training.precision import choose_device
    from klinepred.training.signals import StopRequest
    from klinepred.training.tracking import MlflowTracker
    from klinepred.trial.check import check_precisions
    from klinepred.trial.passes import keep_result, subject_of

    tracker = MlflowTracker(space, run)
    device = choose_device(run.train.device)
    data = build_dataset(run, space)
    subject = subject_of(data, model=run.model, train=run.train, device=device)
    with StopRequest():  # a signal after the last step waits until the result is kept
        report = check_precisions(data, run, steps=steps, tracker=tracker, progress=progress)
        about = {
            "recommendation": report.advice.precision,
            "reason": report.advice.reason,
            "pipeline": run.name,
            "steps": steps,
            "run_id": report.run_id,
            "created": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        }
        keep_result(space, subject, verdicts=report.advice.verdicts, about=about)
    return report


def audit_pipeline(run: Pipeline, space: Workspace) -> Certificate:
    """The leak certificate of a pipeline on its stored bars, before any training.

    Raises
    ------
    StoreError, DatasetError
        Too little is stored.
    """
    from klinepred.audit.audit import audit_stored
    from klinepred.features.custom import features_for

    features = features_for(run.features)
    return audit_stored(space, choose_symbols(run, space), features=features, settings=run.dataset)


def audit_model(folder: Path, space: Workspace) -> Certificate:
    """The leak certificate of a saved model on the bars it was trained on.

    Raises
    ------
    ModelError, StoreError, DatasetError
        The model cannot be read, or its bars are not stored.
    """
    from klinepred.audit.audit import audit_bundle
    from klinepred.model.bundle import load_bundle

    return audit_bundle(space, load_bundle(folder))
