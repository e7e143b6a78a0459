"""In: a dataset, a pipeline, a tracker. Out: the report of a small run before the big one, kept in MLflow."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Final

import torch

from klinepred.dataset.make import Dataset
from klinepred.settings import Pipeline
from klinepred.settings.network import check_network
from klinepred.training.precision import choose_device, resolve
from klinepred.training.progress import NoProgress, Progress
from klinepred.training.signals import StopRequest, TrainingStopped, TrainingTerminated
from klinepred.training.tracker import NoTracker, RunStatus, Tracker
from klinepred.trial.measure import run_trial
from klinepred.trial.passes import machine
from klinepred.trial.picture import draw_trial
from klinepred.trial.report import TrialReport
from klinepred.trial.rules import advise

log = logging.getLogger("klinepred.trial")

KIND: Final = "amp-check"
STEPS: Final = 30
"""Steps of a check unless told otherwise: warm-up, peak and fall of the learning rate all happen in them."""


def check_precisions(
    data: Dataset,
    run: Pipeline,
    *,
    steps: int = STEPS,
    tracker: Tracker | None = None,
    progress: Progress | None = None,
) -> TrialReport:
    """Train a little in every precision of the device, from the same weights on the same batches; say which to use.

    The schedule of the learning rate is pressed into `steps`. Nothing of what is learned is kept.

    Parameters
    ----------
    tracker
        Who records it, with the tag `kind` = "amp-check"; closed FINISHED, KILLED (a signal) or FAILED (any error).

    Raises
    ------
    TrainingStopped
        SIGINT, SIGTERM or SIGHUP came.
    TrainingError
        No labelled rows, or not enough memory.
    UsageError
        The device cannot be used, or network, cut and loss do not fit together.
    """
    check_network(run.model, data.settings, run.train)
    tracker, progress = tracker or NoTracker(), progress or NoProgress()
    device = choose_device(run.train.device)
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if device.type == "cpu" and load > cores:
        log.warning("other programs keep this machine busy (load %.1f on %d cores): times will be rough", load, cores)
    with StopRequest() as stop:

        def check(where: str) -> None:
            if stop.signal is not None:
                raise _stopped(stop, where)

        origin = tracker.start(
            run,
            params={"amp_check_steps": steps},
            tags={"kind": KIND, "device": machine(device)},
            resume=None,
        )
        status: RunStatus = "FAILED"
        try:
            tracker.set_tags({"mlflow.source.name": "klinepred amp-check"})
            trial = run_trial(data, model=run.model, train=run.train, steps=steps, progress=progress, check=check)
            advice = advise(trial.base, trial.others, yardstick=trial.yardstick, amp=_amp(run, device))
            report = TrialReport(trial, advice, run, str(origin.get("run_id", "")))
            _record(report, tracker)
            status = "FINISHED"
        except (TrainingStopped, KeyboardInterrupt):
            status = "KILLED"
            raise
        finally:
            progress.end()
            tracker.end(status)
    return report


def _amp(run: Pipeline, device: torch.device) -> str:
    return resolve(run.train.model_copy(update={"amp": True, "precision": "auto"}), device).name


def _record(report: TrialReport, tracker: Tracker) -> None:
    advice = report.advice
    tracker.log_metrics(report.metrics())
    tracker.set_tags(
        {
            "passed": ", ".join(advice.passed) or "none",
            "recommendation": advice.precision,
            "recommendation_reason": advice.reason,
            **{f"verdict_{name}": verdict for name, verdict in advice.verdicts.items()},
        }
    )
    with tempfile.TemporaryDirectory(prefix="klinepred-") as name:
        folder = Path(name)
        draw_trial(report, folder / "amp-check.png")
        text = json.dumps(report.to_dict(), ensure_ascii=False, allow_nan=False, indent=1)
        (folder / "amp-check.json").write_text(text + "\n", encoding="utf-8")
        tracker.log_folder(folder, under="amp-check")


def _stopped(stop: StopRequest, where: str) -> TrainingStopped:
    name = stop.signal.name if stop.signal is not None else "a signal"
    kind = TrainingStopped if name == "SIGINT" else TrainingTerminated
    return kind(
        f"amp-check stopped by {name}",
        expected="the check to reach its last step",
        got=f"a stop {where}",
        do="start it again; a check keeps nothing before its end",
    )
