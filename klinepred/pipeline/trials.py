"""In: a study, one dataset. Out: its trials, computed in this process one after another, and a line about each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klinepred.errors import TrainingError
from klinepred.headway import Work
from klinepred.settings import Pipeline

if TYPE_CHECKING:
    from klinepred.dataset.make import Dataset
    from klinepred.training.tracking import MlflowTracker
    from klinepred.tuning.study import Study, Tried
    from klinepred.tuning.trial import Setting

log = logging.getLogger("klinepred.pipeline")

FAILURES: Final = 5
"""Failed trials in a row after which the fault is not that of their settings."""


@dataclass(frozen=True)
class Job:
    """What an engine is given: it opens the study itself, and leaves no trial of it open unless it is stopped."""

    path: Path
    setting: Setting
    data: Dataset
    told: Callable[[Tried], None]


Compute = Callable[[Job], None]
"""Who computes the trials of a job."""


def here(job: Job) -> None:
    """Trials in this process, one after another.

    Raises
    ------
    TrainingStopped
        A stop signal came: the trial is saved, and the study goes on from there.
    """
    from klinepred.training.signals import StopRequest, TrainingStopped
    from klinepred.tuning.space import with_values
    from klinepred.tuning.study import Study
    from klinepred.tuning.trial import run_trial

    study = Study(job.path)
    with StopRequest() as stop, _less_talk():
        while (one := study.next()) is not None:
            if stop.signal is not None:
                raise stopped(stop.error(where="between two trials", checkpoint=None), job.path)
            try:
                tried = run_trial(
                    one,
                    with_values(job.setting.run, one.values),
                    job.data,
                    job.setting,
                    heard=partial(study.heard, one.number),
                )
            except TrainingStopped as error:
                raise stopped(error, job.path) from error
            study.close(tried)
            job.told(tried)
            refuse_many_failures(study.rows())


@contextmanager
def _less_talk() -> Iterator[None]:
    """What every training says of itself is not said by every trial, unless all is to be said (-v)."""
    talk = logging.getLogger("klinepred.training")
    before, now = talk.level, talk.getEffectiveLevel()
    talk.setLevel(now if now <= logging.DEBUG else max(now, logging.WARNING))
    try:
        yield
    finally:
        talk.setLevel(before)


def stopped(error: TrainingError, path: Path) -> TrainingError:
    """`error` of a trial as that of its study."""
    return type(error)(
        error.summary.replace("training", "tuning"),
        expected="the study to reach its last trial",
        got=error.got,
        do=f"go on with klinepred tune --resume {path.stem}",
    )


def refuse_many_failures(rows: list[Tried]) -> None:
    """Nothing while trials succeed.

    Raises
    ------
    TrainingError
        The newest ones have all failed.
    """
    ended = [row for row in rows if row.outcome != "open"][-FAILURES:]
    if len(ended) == FAILURES and all(row.outcome == "failed" for row in ended):
        raise TrainingError(
            "trials",
            expected="some that end well",
            got=f"{FAILURES} failures in a row; the last: {ended[-1].note}",
            do="mend that; narrow the space if its values are at fault (--space), then tune again",
        )


def say_start(study: Study, run: Pipeline) -> None:
    log.info("study %s: %d trials of %s, on validation", study.about["name"], study.about["trials"], run.name)
    for line in study.about["space"]:
        log.info("  %s", line)


def teller(study: Study, parent: MlflowTracker, work: Work) -> Callable[[Tried], None]:
    """Says how a trial ended, puts its loss into the study's run, and counts it as a step of `work`."""
    from klinepred.training.tracker import Metric

    total = int(study.about["trials"])
    lowest = [row.loss for row in study.rows() if row.outcome == "complete" and row.loss is not None]

    def tell(tried: Tried) -> None:
        work.step()
        if tried.outcome == "complete" and tried.loss is not None:
            lowest.append(tried.loss)
        loss = "-" if tried.loss is None else f"{tried.loss:.5f}"
        least = f"  best so far {min(lowest):.5f}" if lowest else ""
        values = ", ".join(f"{key} = {_short(value)}" for key, value in tried.values.items())
        log.info("trial %d/%d  %s  validation loss %s%s  %s", tried.number, total, tried.outcome, loss, least, values)
        if tried.note:
            log.warning("trial %d failed: %s", tried.number, tried.note)
        if tried.loss is not None:
            now = int(datetime.now(UTC).timestamp() * 1000)
            numbers = {"trial/val_loss": tried.loss, **({"trial/best_val_loss": min(lowest)} if lowest else {})}
            parent.log_metrics([Metric(name, value, tried.number, now) for name, value in numbers.items()])

    return tell


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
