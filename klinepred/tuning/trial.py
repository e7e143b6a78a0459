"""In: one dataset, a configuration. Out: its validation loss after every epoch, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from klinepred.dataset.make import Dataset
from klinepred.errors import KlinepredError
from klinepred.paths import Workspace
from klinepred.settings import Pipeline
from klinepred.training.checkpoint import load_checkpoint
from klinepred.training.loop import train
from klinepred.training.nested import end_lost
from klinepred.training.progress import EpochNews, NoProgress, StepNews
from klinepred.training.runs import TRIAL
from klinepred.training.signals import TrainingStopped
from klinepred.training.tracking import MlflowTracker
from klinepred.tuning.study import Candidate, Outcome, Tried

OUTCOME = "klinepred.outcome"
"""Tag of a trial's run: complete, pruned, failed."""


class TrialPruned(TrainingStopped):
    """The trial's validation loss was too high beside that of the others: it ends here."""


@dataclass(frozen=True)
class Setting:
    """What all trials of a study share.

    Attributes
    ----------
    space, run, version
        The workspace, the pipeline that is tuned, the version of the store.
    parent
        Id and name of the study's MLflow run.
    marks
        Tags of every trial's run.
    folder
        Where checkpoints of trials that have not ended lie.
    """

    space: Workspace
    run: Pipeline
    version: int | None
    parent: tuple[str, str]
    marks: dict[str, str]
    folder: Path

    def checkpoint(self, number: int) -> Path:
        """Of trial `number`."""
        return self.folder / f"trial-{number}.pt"


def run_trial(
    candidate: Candidate,
    configured: Pipeline,
    data: Dataset,
    setting: Setting,
    *,
    heard: Callable[[int, float], bool],
    stopping: Callable[[], None] = lambda: None,
) -> Tried:
    """Train one network as `klinepred train` does, in a run below the study's; its model is not kept.

    A trial whose checkpoint is there goes on from it, to the same result.

    Parameters
    ----------
    configured
        The pipeline with the candidate's values.
    heard
        Told number and validation loss of every epoch; whether to end the trial.
    stopping
        Called after every step; raises what should end all trials.

    Raises
    ------
    TrainingStopped
        A stop signal came; the trial goes on from its checkpoint when the study does.
    """
    tracker = MlflowTracker(setting.space, configured, version=setting.version)
    tracker.run_id, tracker.run_name = setting.parent
    marks = {TRIAL: str(candidate.number), **setting.marks}
    below = tracker.below(f"trial-{candidate.number}", part=True, marks=marks)
    place = setting.checkpoint(candidate.number)
    watch = _Watch(heard, stopping)
    one = configured.model_copy(update={"train": configured.train.model_copy(update={"ensemble": 1})})
    outcome: Outcome
    try:
        begun = place.is_file()
        if begun:  # the process that wrote it is gone, maybe on another machine
            end_lost(setting.space, [str(load_checkpoint(place)["run_id"])])
        bundle = train(
            data,
            one.model,
            one.train,
            tracker=below,
            progress=watch,
            resume=place if begun else None,
            checkpoint=place,
            pipeline=one,
        )
        outcome, note = "complete", ""
        watch.best = float(bundle.provenance["val_loss"])
    except TrialPruned:
        outcome, note = "pruned", ""
    except TrainingStopped:
        raise
    except KlinepredError as error:
        outcome, note = "failed", f"{error.summary}: expected {error.expected}, got {error.got}"
    except (MemoryError, torch.OutOfMemoryError) as error:
        outcome, note = "failed", f"not enough memory: {' '.join(str(error).split())[:200]}"
    if below.run_id:
        below.set_tags({OUTCOME: outcome, **({"klinepred.note": note} if note else {})})
    place.unlink(missing_ok=True)
    loss = watch.best if math.isfinite(watch.best) else None
    return Tried(candidate.number, candidate.values, outcome, loss, watch.epochs, below.run_id, note)


class _Watch(NoProgress):
    """Hands validation losses on, and ends the trial when told to."""

    def __init__(self, heard: Callable[[int, float], bool], stopping: Callable[[], None]) -> None:
        self.best, self.epochs = math.inf, 0
        self._heard, self._stopping = heard, stopping

    def step(self, news: StepNews) -> None:
        self._stopping()

    def epoch(self, news: EpochNews) -> None:
        self.epochs = news.epoch
        if news.val_loss < self.best:
            self.best = news.val_loss
        if self._heard(news.epoch, news.val_loss) and news.epoch < news.epochs:
            raise TrialPruned(
                "trial",
                expected="a validation loss below the median",
                got=f"{news.val_loss:g}",
                do="nothing: it is pruned",
            )
