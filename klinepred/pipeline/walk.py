"""In: a pipeline with several folds, a workspace. Out: a model for each fold, nested runs, the record of them all."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klinepred.errors import TrainingError
from klinepred.paths import Workspace
from klinepred.pipeline.data import build_folds
from klinepred.pipeline.folds import FoldModel, WalkForward, list_records, save_record
from klinepred.pipeline.learn import origin_of, train_on
from klinepred.settings import Pipeline

if TYPE_CHECKING:
    from klinepred.training.progress import Progress
    from klinepred.training.tracker import RunStatus

log = logging.getLogger("klinepred.pipeline")

PARENT_TAG: Final = "mlflow.parentRunId"


def train_folds(
    run: Pipeline,
    space: Workspace,
    *,
    progress: Progress | None = None,
    resume: str | None = None,
    allow_leaks: bool = False,
) -> WalkForward:
    """Train a model for every fold, oldest first, each audited and in a run of its own below that of the walk-forward.

    The record beside the models is written after every fold. Processes that `torchrun` has started train each fold
    together; started again, they go on with the fold in which one was lost.

    Parameters
    ----------
    resume
        The run of a fold (or its checkpoint): folds that have their model are kept, this one goes on where it stopped,
        and those after it follow.

    Raises
    ------
    StoreError, DatasetError, TrainingError
        As `klinepred.pipeline.train_model`; or `resume` is no fold of a walk-forward.
    """
    from klinepred.training.ranks import joined
    from klinepred.training.signals import TrainingStopped
    from klinepred.training.tracker import NoTracker
    from klinepred.training.tracking import MlflowTracker

    with joined() as ranked:
        ranked.device(run.train.device)  # a device that is not there is said before anything is computed
        begun = ranked.told(ranked.first_only(lambda: _begun(run, space, resume)))
        checkpoint = Path(begun["checkpoint"]) if begun["checkpoint"] else None
        record = WalkForward.from_dict(begun["record"]) if begun["record"] else None
        version, done = begun["version"], list(record.models) if record else []
        parent = MlflowTracker(space, run, version=version) if ranked.first else None
        about = {"klinepred.walk_forward": f"{run.dataset.split.folds} folds, {run.dataset.split.scheme}"}
        if parent is not None:
            parent.start(run, params={}, tags=about, resume=record.run_id if record else None)
        status: RunStatus = "FAILED"
        try:
            run_id, run_name = ranked.told([parent.run_id, parent.run_name] if parent else None)
            name = (record.name if record else "") or run_name
            folds = build_folds(run, space, skip=len(done), version=version)
            for number in range(len(done) + 1, run.dataset.split.folds + 1):
                data = ranked.first_then(lambda: next(folds))
                log.info("fold %d of %d", number, data.split.folds)
                trained = train_on(
                    data,
                    run,
                    space,
                    version=version,
                    tracker=parent.below(f"fold-{number}") if parent else NoTracker(),
                    progress=progress,
                    checkpoint=checkpoint,
                    allow_leaks=allow_leaks,
                )
                checkpoint = None  # only the first one had been begun
                done.append(
                    FoldModel(
                        fold=number,
                        model=trained.folder.name,
                        run_id=trained.bundle.run_id,
                        split=data.split.to_dict(),
                        labels=data.counts(),
                    )
                )
                del trained, data
                record = WalkForward(name, run.name, run_id, run.dataset.split.folds, tuple(done))
                if ranked.first:
                    save_record(space, record)
            status = "FINISHED"
        except (TrainingStopped, KeyboardInterrupt):
            status = "KILLED"
            raise
        finally:
            if parent is not None:
                parent.end(status)
    if record is None:
        raise _nothing_left(str(resume))
    return record


def _begun(run: Pipeline, space: Workspace, resume: str | None) -> dict[str, Any]:
    """What there is of the walk-forward that goes on: checkpoint of a fold, record, version of the store it saw."""
    from klinepred.training.checkpoint import load_checkpoint

    found, version = origin_of(run, space, resume)
    record = _record_of(Path(found), space) if found else None
    if record and record.models:
        same_settings(run, space, record)
    if found and record and load_checkpoint(Path(found))["run_id"] in {one.run_id for one in record.models}:
        found = None  # of a fold that has its model: the next one begins at its start
    return {"checkpoint": found, "record": record.to_dict() if record else None, "version": version}


def same_settings(run: Pipeline, space: Workspace, record: WalkForward) -> None:
    """Nothing where the folds that are left ask what those before them were asked; a word where they train otherwise.

    The checkpoint of a fold knows its own data and network; folds that have not begun have nothing to be held against
    but the models of those that ended.

    Raises
    ------
    TrainingError
        Other spans, data or networks: the folds would not be those of one walk-forward, and spans could overlap.
    ModelError
        The model of the fold before is gone.
    """
    from klinepred.model.bundle import read_table

    had = _settings(read_table(space.trained / record.models[-1].model)["pipeline"])
    has = _settings(run.model_dump(mode="json"))
    changed = [key for key in has if key in had and had[key] != has[key]]
    fixed = [key for key in changed if not key.startswith("train.")]
    if fixed:
        raise TrainingError(
            f"--resume of walk-forward {record.name}",
            expected=", ".join(f"{key} = {had[key]}" for key in fixed),
            got=", ".join(f"{key} = {has[key]}" for key in fixed),
            do="resume with what the folds before were trained with, or begin anew without --resume",
        )
    for key in changed:
        log.warning("resumed with %s = %s, before %s: folds that had ended keep theirs", key, has[key], had[key])


def _settings(table: Mapping[str, Any]) -> dict[str, Any]:
    """What decides about folds, of a pipeline as plain values; a preset's name alone decides nothing."""
    parts = {
        "data.": {key: table["data"].get(key) for key in ("symbols", "calendar")},
        **{f"{section}.": table[section] for section in ("features", "dataset", "model", "train")},
        "dataset.split.": table["dataset"]["split"],
    }
    flat = {section + key: value for section, part in parts.items() for key, value in part.items()}
    return {key: value for key, value in flat.items() if key not in ("model.preset", "dataset.split")}


def _record_of(checkpoint: Path, space: Workspace) -> WalkForward:
    """The walk-forward that the interrupted run of a fold belongs to, with the folds that were done before it.

    Raises
    ------
    TrainingError
        It belongs to none.
    """
    from klinepred.training.checkpoint import load_checkpoint
    from klinepred.training.review import tags_of

    run_id = str(load_checkpoint(checkpoint)["run_id"])
    parent = tags_of(space, run_id).get(PARENT_TAG)
    if parent is None:
        raise TrainingError(
            f"--resume of run {run_id}",
            expected="the run of a fold of a walk-forward, as dataset.split.folds asks for one",
            got="a run of its own",
            do="resume it with the pipeline it was begun with, or begin the walk-forward anew without --resume",
        )
    found = next((record for record in list_records(space) if record.run_id == parent), None)
    return found or WalkForward("", "", parent, 0, ())


def _nothing_left(resume: str) -> TrainingError:
    return TrainingError(
        f"--resume {resume}",
        expected="a walk-forward with folds left to train",
        got="one that is finished",
        do="begin anew without --resume",
    )
