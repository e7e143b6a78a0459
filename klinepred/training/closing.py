"""In: a run whose training is over. Out: it closed, with pictures, its model linked and registered, each once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klinepred.errors import TrainingError
from klinepred.model.bundle import ModelBundle
from klinepred.paths import Workspace
from klinepred.training.experiment import open_experiment
from klinepred.training.logged_model import is_registered, link_model, log_model
from klinepred.training.moved import FAMILY
from klinepred.training.origin import process_gone
from klinepred.training.plots import log_plots
from klinepred.training.quiet import quiet
from klinepred.training.registry import register
from klinepred.training.runs import run_store
from klinepred.training.store_fault import store_errors
from klinepred.training.tracker import RunStatus

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

FINISHED: Final = "FINISHED"


def close_run(client: MlflowClient, run_id: str, *, status: RunStatus, model_id: str) -> None:
    """Draw the pictures, name the model as the run's output, and give the run its status. Errors of MLflow pass."""
    log_plots(client, run_id)
    if status == FINISHED and model_id:
        link_model(client, run_id, model_id)
    client.set_terminated(run_id, status)


def conclude(space: Workspace, bundle: ModelBundle, folder: Path, *, pipeline: str) -> None:
    """Do what is left to do of a run whose model lies on the shelf: a kill, or a fault, came before its end.

    What was done already is not done again: the run keeps its one model and its one version in the registry.

    Parameters
    ----------
    folder
        Where the bundle lies.

    Raises
    ------
    TrainingError
        The store cannot be read or written, or another process is still at the run.
    """
    uri = run_store(space)
    with store_errors(uri, then="continue with klinepred train --resume last"):
        client, _ = open_experiment(space, uri, FAMILY + pipeline)
        run = client.get_run(bundle.run_id)
        if run.info.status == FINISHED and is_registered(client, run):
            return
        refuse_busy(run)
        with quiet():
            model_id = log_model(client, bundle.run_id, bundle, folder)
        if run.info.status != FINISHED:
            close_run(client, bundle.run_id, status=FINISHED, model_id=model_id)
        register(client, pipeline, uri=uri, run_id=bundle.run_id, model_id=model_id)


def refuse_busy(run: Run) -> None:
    """Nothing where no other process is at the run.

    Raises
    ------
    TrainingError
        One is, as far as can be known.
    """
    pid = run.data.tags.get("klinepred.pid")
    if run.info.status == "RUNNING" and pid != str(os.getpid()) and not process_gone(run.data.tags):
        raise TrainingError(
            f"resume of run {run.info.run_name}",
            expected="a run that has ended",
            got=f"one that process {pid} is still training",
            do="stop that process first, or start a new run",
        )
