"""In: a pipeline, a workspace, a search space. Out: trials on validation, the pipeline with the best settings."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from filelock import FileLock, Timeout

from klinepred.bars.store import store_version
from klinepred.config import parse_pipeline
from klinepred.errors import TrainingError, UsageError
from klinepred.headway import Work
from klinepred.paths import Workspace, write_atomic
from klinepred.pipeline.data import build_dataset
from klinepred.pipeline.trials import Compute, Job, here, say_start, teller
from klinepred.settings import Pipeline

if TYPE_CHECKING:
    from klinepred.audit.check import Certificate
    from klinepred.dataset.make import Dataset
    from klinepred.training.tracker import RunStatus, Tracker
    from klinepred.training.tracking import MlflowTracker
    from klinepred.tuning.study import Tried

log = logging.getLogger("klinepred.pipeline")

KIND: Final = "klinepred.kind"


@dataclass(frozen=True)
class Tuned:
    """A finished search.

    Attributes
    ----------
    name, run_id
        The study, and its MLflow run.
    trials
        All of them, the best complete one first.
    best
        The pipeline with the settings of that one.
    """

    name: str
    run_id: str
    trials: tuple[Tried, ...]
    best: Pipeline


def tune(
    run: Pipeline,
    space: Workspace,
    *,
    lines: tuple[str, ...] = (),
    trials: int | None = None,
    compute: Compute | None = None,
    allow_leaks: bool = False,
) -> Tuned:
    """Search settings that give the lowest validation loss; every trial is trained as `klinepred train` trains.

    The test part is not looked at. Each trial is a run nested in that of the study, and counts as a look at the test
    part of every model of the pipeline.

    Parameters
    ----------
    lines
        Axes as in `[tune]`, added to those there.
    trials
        Default: `tune.trials`.
    compute
        Who computes the trials; default: this process, one after another.

    Raises
    ------
    KlinepredError
        As `klinepred.pipeline.train_model`; a setting that cannot be searched; Optuna is not installed; no trial is
        complete.
    """
    from klinepred.tuning.space import given_settings, own_values, searched
    from klinepred.tuning.study import Study, load_optuna

    load_optuna()
    _refuse_others(run)
    axes = searched(run, lines)
    version = store_version(space)
    ready = _prepare(run, space, version=version, allow_leaks=allow_leaks)
    name = f"{run.name}-tune-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    about = {
        "name": name,
        "pipeline": given_settings(run),
        "version": version,
        "trials": trials or run.tune.trials,
        "seed": run.train.seed,
        "pruner": run.tune.pruner,
        "grace": run.tune.grace,
        "allow_leaks": allow_leaks,
    }
    path = study_path(space, name)
    with _held(path):
        Study.begin(path, axes=axes, about=about, first=own_values(run, axes))
        return _carry_out(path, ready, compute=compute or here)


def resume_tuning(
    space: Workspace,
    which: str,
    *,
    trials: int | None = None,
    compute: Compute | None = None,
) -> Tuned:
    """Go on with a study that was stopped, or add trials to one: those that were open go on from their checkpoints.

    Parameters
    ----------
    which
        The study's name, or "last".
    trials
        How many there shall be in all; default: as before.

    Raises
    ------
    KlinepredError
        As `tune`; or there is no such study, or another process is at work on it.
    """
    from klinepred.tuning.study import Study

    path = study_named(space, which)
    with _held(path):
        study = Study(path)
        if trials is not None:
            study.keep(trials=trials)
        run = parse_pipeline(study.about["pipeline"], where=f"of study {path.stem}", workspace=space)
        about = study.about
        ready = _prepare(run, space, version=about["version"], allow_leaks=about["allow_leaks"])
        return _carry_out(path, ready, compute=compute or here)


@dataclass(frozen=True)
class Ready:
    """What a study needs before its first trial: data, their certificate, a run that is not open yet."""

    run: Pipeline
    space: Workspace
    version: int | None
    data: Dataset
    certificate: Certificate
    parent: MlflowTracker


def _prepare(run: Pipeline, space: Workspace, *, version: int | None, allow_leaks: bool) -> Ready:
    """Errors as `klinepred.pipeline.train_model`; nothing is written."""
    from klinepred.audit.audit import audit_before_training
    from klinepred.audit.mark import refuse_leaks
    from klinepred.training.precision import choose_device
    from klinepred.training.tracking import MlflowTracker

    parent = MlflowTracker(space, run, version=version)
    choose_device(run.train.device)  # a device that is not there is said before anything is computed
    data = build_dataset(run, space, version=version)
    certificate = audit_before_training(space, data, as_of=version)
    if not allow_leaks:
        refuse_leaks(certificate, pipeline=run.name)
    if run.train.ensemble > 1:
        log.warning("train.ensemble = %d is ignored while tuning: a trial trains one network", run.train.ensemble)
    return Ready(run, space, version, data, certificate, parent)


def _carry_out(path: Path, ready: Ready, *, compute: Compute) -> Tuned:
    """The study from where it stands to its end."""
    from klinepred.audit.mark import CertifiedTracker
    from klinepred.training.data_note import record_data
    from klinepred.training.signals import TrainingStopped
    from klinepred.tuning.study import Study, best_first
    from klinepred.tuning.trial import Setting

    run, space, parent, data = ready.run, ready.space, ready.parent, ready.data
    about = Study(path).about
    certified: Tracker = CertifiedTracker(parent, ready.certificate, space=space)
    tags = {KIND: "tune", "klinepred.space": "; ".join(about["space"])}
    origin = certified.start(run, params={}, tags=tags, resume=about.get("run_id"))
    parent.set_tags({"mlflow.source.name": "klinepred tune"})
    Study(path).keep(run_id=parent.run_id)
    marks = {"leak_certificate": str(origin["leak_certificate"]).split()[0], "mlflow.source.name": "klinepred tune"}
    setting = Setting(space, run, ready.version, (parent.run_id, parent.run_name), marks, path.with_suffix(""))
    status: RunStatus = "FAILED"
    try:
        record_data(data, certified)
        say_start(Study(path), run)
        ended = sum(row.outcome != "open" for row in Study(path).rows())
        with Work("trials", total=int(about["trials"]), done=ended) as work:
            compute(Job(path, setting, data, teller(Study(path), parent, work)))
        trials = tuple(best_first(Study(path).rows()))
        tuned = Tuned(path.stem, parent.run_id, trials, _best(trials, run))
        _keep(tuned, parent)
        status = "FINISHED"
        shutil.rmtree(setting.folder, ignore_errors=True)
    except (TrainingStopped, KeyboardInterrupt):
        status = "KILLED"
        raise
    finally:
        certified.end(status)
    return tuned


def study_path(space: Workspace, name: str) -> Path:
    """The file of a study."""
    return space.mlruns / "tune" / f"{name}.db"


def study_named(space: Workspace, which: str, *, pipeline: str | None = None) -> Path:
    """The file of the study called `which`, or of the last one; of that pipeline, if one is named.

    Raises
    ------
    UsageError
        There is none.
    """
    files = sorted((space.mlruns / "tune").glob("*-tune-*.db"), key=lambda path: path.stat().st_mtime)
    if pipeline is not None:
        files = [path for path in files if path.stem.rpartition("-tune-")[0] == pipeline]
    found = files[-1:] if which == "last" else [path for path in files if path.stem == which]
    if found:
        return found[0]
    raise UsageError(
        f"--resume {which}",
        expected='the name of a study, or "last"',
        got=f"studies{f' of {pipeline}' if pipeline else ''}: "
        + (", ".join(path.stem for path in reversed(files[-5:])) or "none"),
        do="name one of these" if files else "begin one: klinepred tune without --resume",
    )


@contextmanager
def _held(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path.with_suffix(".lock"), timeout=0):
            yield
    except Timeout as error:
        raise TrainingError(
            f"study {path.stem}",
            expected="to be alone at work on it",
            got="another process that holds it",
            do="wait for that one, or stop it",
        ) from error


def _refuse_others(run: Pipeline) -> None:
    from klinepred.engine.launched import refuse_several

    refuse_several("a search of settings", do="tune in one process, or with --engine ray")
    if run.dataset.split.folds > 1:
        raise UsageError(
            "tuning a walk-forward",
            expected="dataset.split.folds = 1",
            got=str(run.dataset.split.folds),
            do="tune with --set dataset.split.folds=1: its train and validation parts are those of the first fold",
        )


def _best(trials: tuple[Tried, ...], run: Pipeline) -> Pipeline:
    from klinepred.tuning.space import with_values

    if trials and trials[0].outcome == "complete":
        return with_values(run, trials[0].values)
    notes = [row.note for row in trials if row.note]
    raise TrainingError(
        "trials of the study",
        expected="at least one that is complete",
        got=f"{len(trials)} that are not" + (f"; one failed: {notes[0]}" if notes else ""),
        do="mend that; narrow the space if its values are at fault (--space), then tune again",
    )


def _keep(tuned: Tuned, parent: MlflowTracker) -> None:
    """Trials and the best settings into the study's run."""
    from klinepred.training.resolved import pipeline_toml

    best = tuned.trials[0]
    with tempfile.TemporaryDirectory(prefix="klinepred-") as folder:
        rows = [asdict(row) for row in tuned.trials]
        write_atomic(Path(folder) / "trials.json", json.dumps(rows, ensure_ascii=False, indent=1) + "\n")
        write_atomic(Path(folder) / "best.toml", pipeline_toml(tuned.best))
        parent.log_folder(Path(folder), under="tune")
    counts = {word: sum(row.outcome == word for row in tuned.trials) for word in ("complete", "pruned", "failed")}
    parent.set_tags(
        {
            "klinepred.best_trial": str(best.number),
            **{f"klinepred.trials_{word}": str(count) for word, count in counts.items()},
        }
    )
