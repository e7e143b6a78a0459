"""In: a workspace, its run store, a name. Out: a client and the experiment of that name, made one process at a time."""

from __future__ import annotations

import logging
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from filelock import FileLock

from klinepred.errors import TrainingError
from klinepred.paths import Workspace
from klinepred.training.moved import FAMILY, adopt_moved_artifacts, artifact_location, place_default
from klinepred.training.origin import process_gone
from klinepred.training.quiet import quiet
from klinepred.training.runs import DATABASES, check_store
from klinepred.training.verdict_view import TAG as VIEW
from klinepred.training.verdict_view import verdict_view

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger("klinepred.training")

KIND: Final = {"mlflow.experimentKind": "custom_model_development"}  # else the UI opens on traces of language models


def open_experiment(space: Workspace, uri: str, name: str) -> tuple[MlflowClient, str]:
    """Connect to a store and create what is missing, under a lock: MLflow's migration of a fresh database dies where
    several processes begin it.

    Returns
    -------
    tuple[MlflowClient, str]
        A client of the store; the experiment's id.

    Raises
    ------
    MlflowException, SQLAlchemyError, OSError, filelock.Timeout, TrainingError
        The store cannot be opened or written.
    """
    place = artifact_location(space, name) if uri.startswith(DATABASES) else None
    _need_client(place)
    space.mlruns.mkdir(parents=True, exist_ok=True)
    with FileLock(space.mlruns / ".mlflow.lock", timeout=120.0):
        if uri == space.tracking_uri and place is not None:
            adopt_moved_artifacts(space, experiment=name, location=place)
        check_store(uri)
        with quiet():
            from mlflow import MlflowClient

            client = MlflowClient(tracking_uri=uri)
            known = client.get_experiment_by_name(name)
        if uri == space.tracking_uri:
            place_default(space)
        view = {VIEW: verdict_view(int(time.time() * 1000))}
        if known is None:
            return client, str(client.create_experiment(name, artifact_location=place, tags={**KIND, **view}))
        if known.lifecycle_stage == "deleted":
            client.restore_experiment(known.experiment_id)
        if VIEW not in known.tags:
            client.set_experiment_tag(known.experiment_id, VIEW, view[VIEW])
        return client, str(known.experiment_id)


def _need_client(place: str | None) -> None:
    if place is not None and place.startswith("s3:") and find_spec("boto3") is None:
        raise TrainingError(
            f"artifacts in {place}",
            expected="boto3, by which MLflow writes there",
            got="no such package",
            do="pip install 'klinepred[s3]'",
        )


def close_gone(client: MlflowClient) -> None:
    """Mark runs KILLED that say RUNNING although their process on this machine is gone."""
    ours = client.search_experiments(filter_string=f"name LIKE '{FAMILY}%'")
    for run in client.search_runs([e.experiment_id for e in ours], "attributes.status = 'RUNNING'"):
        if process_gone(run.data.tags):
            client.set_terminated(run.info.run_id, "KILLED")
            log.warning("run %s was left RUNNING by a process that is gone: marked KILLED", run.info.run_name)
