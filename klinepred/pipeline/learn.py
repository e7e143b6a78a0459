"""In: a pipeline and a workspace. Out: its audit, its check of precisions, its training; each can be run alone."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from klinepred.bars.store import store_version
from klinepred.config import change_pipeline
from klinepred.errors import UsageError
from klinepred.paths import Workspace
from klinepred.pipeline.data import build_dataset
from klinepred.pipeline.finished import finished_model
from klinepred.pipeline.past import seen_version
from klinepred.pipeline.symbols import choose_symbols
from klinepred.settings import Pipeline

if TYPE_CHECKING:
    from klinepred.audit.check import Certificate
    from klinepred.dataset.make import Dataset
    from klinepred.model.bundle import ModelBundle
    from klinepred.training.progress import Progress
    from klinepred.training.tracker import Tracker
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
    init_from: str | None = None,
    allow_leaks: bool = False,
) -> Trained:
    """Audit, train, log the run to MLflow with its leak certificate, put the bundle on the workspace's shelf.

    Parameters
    ----------
    init_from
        Name or folder of the model whose weights training begins from; its scaler is kept.
    allow_leaks
        Train although the leak certificate, or that of `init_from`, has failed; run and bundle say so for ever.

    Raises
    ------
    StoreError, DatasetError, TrainingError
        See `build_dataset` and `klinepred.training.loop.train`; or the leak certificate has failed.
    """
    from klinepred.training.ranks import joined
    from klinepred.training.tracker import NoTracker
    from klinepred.training.tracking import MlflowTracker
    from klinepred.training.warm import check_seen, kept_scaler, refuse_both

    if run.dataset.split.folds > 1:
        raise UsageError(
            f"one model for pipeline {run.name}",
            expected="dataset.split.folds = 1",
            got=f"{run.dataset.split.folds}: a walk-forward has a model for each fold",
            do="use klinepred.pipeline.train_folds",
        )
    refuse_both(init_from, resume)
    with joined() as ranked:
        ranked.device(run.train.device)  # a device that is not there is said before anything is computed
        found = ranked.first_only(lambda: origin_of(run, space, resume))
        place, version = ranked.told(found)
        checkpoint = Path(place) if place else None
        begins = init_from if checkpoint is None else None  # started again, its weights lie in the checkpoint
        first = _first(begins, run, space, allow_leaks=allow_leaks) if begins else None
        tracker = MlflowTracker(space, run, version=version) if ranked.first else NoTracker()
        kept = first.scaler if first else kept_scaler(checkpoint) if checkpoint else None
        data = ranked.first_then(lambda: build_dataset(run, space, version=version, scaler=kept))
        if first is not None:
            check_seen(first, data.split)
        return train_on(
            data,
            run,
            space,
            version=version,
            tracker=tracker,
            progress=progress,
            checkpoint=checkpoint,
            first=first,
            allow_leaks=allow_leaks,
        )


def train_on(
    data: Dataset,
    run: Pipeline,
    space: Workspace,
    *,
    version: int | None,
    tracker: Tracker,
    progress: Progress | None,
    checkpoint: Path | None,
    first: ModelBundle | None = None,
    allow_leaks: bool,
) -> Trained:
    """The part of `train_model` that follows once the dataset is there; a fold of a walk-forward takes it alike.

    Parameters
    ----------
    version
        Of the store, that the dataset was made from.
    tracker
        Who records the run, not started yet.
    checkpoint
        To go on from.
    first
        The model training begins from.
    """
    from klinepred.audit.audit import audit_before_training
    from klinepred.audit.mark import CertifiedTracker, is_leaky, refuse_leaks
    from klinepred.model.bundle import load_bundle, save_bundle
    from klinepred.model.shelf import shelf_name
    from klinepred.training.budget import expected_memory, say_memory
    from klinepred.training.loop import train
    from klinepred.training.ranks import ranks
    from klinepred.training.signals import StopRequest
    from klinepred.trial.passes import untried

    ranked = ranks()
    if checkpoint is not None:
        begun = checkpoint
        found = ranked.first_only(lambda: finished_model(space, begun, run))
        if (had := ranked.told(found and str(found))) is not None:
            log.warning("run %s had ended: nothing is left to train, its model is %s", begun.stem, Path(had).name)
            return Trained(load_bundle(had), Path(had), data)

    def audited() -> Tracker:
        certificate = audit_before_training(space, data, as_of=version)
        if not allow_leaks:
            refuse_leaks(certificate, pipeline=run.name)
        if checkpoint is None and (line := untried(space, run, data)):
            log.warning("%s", line)
        device = ranked.device(run.train.device)
        log.info("%s", say_memory(data, expected_memory(data, run.model, run.train), device))
        return CertifiedTracker(tracker, certificate, space=space, tainted=first is not None and is_leaky(first))

    certified = ranked.first_only(audited)
    shelved: list[Trained] = []

    def shelve(bundle: ModelBundle) -> None:
        named = replace(bundle, name=shelf_name(bundle))
        folder = space.trained / named.name
        shelved.append(Trained(named, save_bundle(named, folder) if ranked.first else folder, data))

    with StopRequest():  # a signal after the last step waits until the finished model lies on the shelf
        train(
            data,
            run.model,
            run.train,
            tracker=certified,
            progress=progress if ranked.first else None,
            resume=checkpoint,
            pipeline=run,
            init_from=first,
            shelve=shelve,
        )
    return shelved[0]


def origin_of(run: Pipeline, space: Workspace, resume: str | None) -> tuple[str | None, int | None]:
    """The checkpoint to go on from, and the version of the store whose bars are to be learned from.

    Where the processes of this very job were started again it is the job's own, else that of `resume`.
    """
    from klinepred.training.checkpoint import checkpoint_of, find_checkpoint
    from klinepred.training.ranks import job, restarted

    again = checkpoint_of(space, job(), pipeline=run.name) if restarted() else None
    path = again or (find_checkpoint(space, resume) if resume else None)
    if path is None:
        return None, store_version(space)
    if again is not None:
        log.warning("a process was lost and all were started again: training goes on from %s", path.stem)
    return str(path), seen_version(space, path)


def resumed_pipeline(space: Workspace, resume: str, *, overrides: tuple[str, ...]) -> Pipeline:
    """The pipeline of a checkpoint with overrides applied.

    Raises
    ------
    UsageError, TrainingError
        No checkpoint, or more than one, fits; or it cannot be read.
    """
    from klinepred.training.checkpoint import find_checkpoint, load_checkpoint

    path = find_checkpoint(space, resume)
    table = load_checkpoint(path)["pipeline"]
    return change_pipeline(table, overrides=overrides, where=f"of checkpoint {path.stem}", workspace=space)


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


def _first(name: str, run: Pipeline, space: Workspace, *, allow_leaks: bool) -> ModelBundle:
    """The model that training begins from, checked before anything is computed."""
    from klinepred.audit.mark import refuse_leaky_start
    from klinepred.features.custom import features_for
    from klinepred.model.bundle import load_bundle
    from klinepred.model.shelf import choose_model
    from klinepred.training.warm import check_start

    bundle = load_bundle(choose_model(space, pipeline=run.name, name=name))
    check_start(bundle, model=run.model, features=features_for(run.features), train=run.train)
    if not allow_leaks:
        refuse_leaky_start(bundle)
    return bundle


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
