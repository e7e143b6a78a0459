"""In: a run of a workspace. Out: the runs nested in it; runs closed whose processes are gone."""

from __future__ import annotations

from collections.abc import Sequence

from klinepred.paths import Workspace
from klinepred.training.runs import check_store, run_store


def end_lost(space: Workspace, runs: Sequence[str]) -> None:
    """Mark KILLED those of `runs` that say RUNNING; whoever calls it knows that their processes are gone.

    Raises
    ------
    UsageError, TrainingError
        See `run_store`; the store cannot be opened.
    """
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    uri = run_store(space)
    check_store(uri)
    client = MlflowClient(tracking_uri=uri)
    for run_id in runs:
        try:
            if client.get_run(run_id).info.status == "RUNNING":
                client.set_terminated(run_id, "KILLED")
        except MlflowException:  # gone from the store, or unreachable: the next start looks again
            continue


def runs_below(space: Workspace, run_id: str) -> list[str]:
    """Runs nested in a run. Raises as `end_lost`."""
    from mlflow import MlflowClient

    uri = run_store(space)
    check_store(uri)
    client = MlflowClient(tracking_uri=uri)
    home = client.get_run(run_id).info.experiment_id
    found, token = [], None
    while True:
        runs = client.search_runs([home], f"tags.`mlflow.parentRunId` = '{run_id}'", page_token=token)
        found += [str(run.info.run_id) for run in runs]
        token = runs.token
        if not token:
            return found
