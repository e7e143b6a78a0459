"""In: a run that has ended. Out: its learning curves; metrics, tags and files added to it in MLflow."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klinepred.errors import TrainingError
from klinepred.paths import Workspace
from klinepred.training.metric_names import clean_name
from klinepred.training.moved import adopt_moved_artifacts, artifact_location
from klinepred.training.registry import tag_versions
from klinepred.training.runs import TEST_AFTER, TRIAL, check_store, run_store
from klinepred.training.store_fault import store_fault
from klinepred.training.tracker import Metric as Point

if TYPE_CHECKING:
    from mlflow.entities import Run

CHUNK: Final = 1000
"""Points that MLflow takes at once."""


def add_to_run(
    space: Workspace,
    run_id: str,
    *,
    metrics: Mapping[str, float],
    tags: Mapping[str, str],
    files: Mapping[str, Sequence[Path]],
) -> bool:
    """Add to a run that has ended; its status stays as it is.

    Parameters
    ----------
    metrics
        Finite numbers, recorded at step 0.
    files
        By the artifact folder they belong in.

    Returns
    -------
    bool
        False where the store has no such run; nothing was written then.

    Raises
    ------
    UsageError, TrainingError
        The store is of a kind MLflow no longer supports, or cannot be written.
    """
    uri = run_store(space)
    if uri == space.tracking_uri and not (space.mlruns / "mlflow.db").is_file():
        return False
    from mlflow import MlflowClient
    from mlflow.entities import Metric, RunTag
    from mlflow.exceptions import MlflowException

    check_store(uri)
    client = MlflowClient(tracking_uri=uri)
    try:
        run = client.get_run(run_id)
        name = client.get_experiment(run.info.experiment_id).name
    except MlflowException:
        return False
    if uri == space.tracking_uri and adopt_moved_artifacts(
        space, experiment=name, location=artifact_location(space, name)
    ):
        client = MlflowClient(tracking_uri=uri)  # the old one may remember where artifacts lay
    now = int(time.time() * 1000)
    try:
        client.log_batch(
            run_id,
            metrics=[Metric(clean_name(name), value, now, 0) for name, value in metrics.items()],
            tags=[RunTag(name, text) for name, text in tags.items()],
        )
        tag_versions(client, run_id, tags)
        for folder, paths in files.items():
            for path in paths:
                client.log_artifact(run_id, str(path), folder)
    except (MlflowException, OSError) as error:
        raise TrainingError(
            f"MLflow run {run_id} in {uri}",
            expected="a run store that can be written",
            got=str(error).splitlines()[0][:300],
            do="free space or mend permissions, then run klinepred evaluate again",
        ) from error
    return True


def add_series(space: Workspace, run_id: str, points: Sequence[Point]) -> int | None:
    """Add points of time series to a run that has ended; a point it has already, at that time with that value, stays.

    Parameters
    ----------
    points
        Finite numbers; names are cleaned for MLflow (`klinepred.training.metric_names`).

    Returns
    -------
    int or None
        Points that were new; None where the store has no such run, or there is no store.

    Raises
    ------
    UsageError, TrainingError
        The store is of a kind MLflow no longer supports, or cannot be read or written.
    """
    uri = run_store(space)
    if not run_id or (uri == space.tracking_uri and not (space.mlruns / "mlflow.db").is_file()):
        return None
    from mlflow import MlflowClient
    from mlflow.entities import Metric
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    check_store(uri)
    try:
        client = MlflowClient(tracking_uri=uri)
        try:
            client.get_run(run_id)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        names = dict.fromkeys(clean_name(point.name) for point in points)
        have = {(name, old.timestamp, old.value) for name in names for old in client.get_metric_history(run_id, name)}
        cleaned = [(clean_name(point.name), point.time_ms, point.value, point.step) for point in points]
        fresh = [Metric(name, value, at, step) for name, at, value, step in cleaned if (name, at, value) not in have]
        for at in range(0, len(fresh), CHUNK):
            client.log_batch(run_id, metrics=fresh[at : at + CHUNK])
    except (MlflowException, SQLAlchemyError, OSError) as error:
        raise store_fault(error, what=f"run {run_id}", uri=uri, then="run klinepred grade again") from error
    return len(fresh)


def history_of(space: Workspace, run_id: str, names: Sequence[str]) -> dict[str, list[tuple[int, float]]]:
    """Curves of a run by metric name, as pairs of step and value; empty where the store has none, or is damaged.

    Raises
    ------
    UsageError
        See `run_store`.
    """
    uri = run_store(space)
    if not run_id or (uri == space.tracking_uri and not (space.mlruns / "mlflow.db").is_file()):
        return {}
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    try:
        check_store(uri)
        client = MlflowClient(tracking_uri=uri)
        curves = {name: client.get_metric_history(run_id, clean_name(name)) for name in names}
    except (MlflowException, TrainingError):
        return {}
    return {name: [(metric.step, metric.value) for metric in curve] for name, curve in curves.items() if curve}


def count_looks(space: Workspace, run_id: str, *, test_after: str) -> int:
    """Finished runs of the experiment of `run_id` whose test part begins on the same day; itself included, 1 at least.

    Members of an ensemble, and folds, are parts of their parent and not counted beside it. Trials of a search of
    settings are configurations that were tried: each counts, pruned and failed ones too, and their parent does not.

    Parameters
    ----------
    test_after
        The day (2026-05-04) after which the test part begins, as training tags its run.

    Raises
    ------
    UsageError, TrainingError
        See `run_store`; the store cannot be opened.
    """
    uri = run_store(space)
    if not run_id or (uri == space.tracking_uri and not (space.mlruns / "mlflow.db").is_file()):
        return 1
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    check_store(uri)
    client = MlflowClient(tracking_uri=uri)
    wanted = f"tags.{TEST_AFTER} = '{test_after}'"
    found, token = {run_id}, None
    try:
        home = client.get_run(run_id).info.experiment_id
        while True:
            runs = client.search_runs([home], wanted, max_results=1000, page_token=token)
            found |= {look for run in runs if (look := _look(run.info.run_id, run.info.status, run.data.tags))}
            token = runs.token
            if not token:
                return len(found)
    except MlflowException:
        return 1


def _look(run_id: str, status: str, tags: Mapping[str, str]) -> str | None:
    """What a run is a look by, if it is one; a trial that had to begin again in another run is the same look."""
    above = tags.get("mlflow.parentRunId")
    if TRIAL in tags:
        return f"{above} {tags[TRIAL]}"
    return run_id if status == "FINISHED" and above is None else None


def tags_of_runs(space: Workspace, name: str) -> dict[str, str]:
    """Value of the tag `name` of every run that has it, deleted runs included, by run id.

    Raises
    ------
    UsageError, TrainingError
        See `run_store`; the store cannot be read.
    """
    uri = run_store(space)
    from mlflow import MlflowClient
    from mlflow.entities import ViewType
    from mlflow.exceptions import MlflowException

    found: dict[str, str] = {}
    check_store(uri)
    try:
        client = MlflowClient(tracking_uri=uri)
        pages = client.search_experiments(view_type=ViewType.ALL)
        experiments = [*pages]
        while pages.token:
            pages = client.search_experiments(view_type=ViewType.ALL, page_token=pages.token)
            experiments.extend(pages)
        for experiment in experiments:
            token = None
            while True:
                runs = client.search_runs([experiment.experiment_id], "", ViewType.ALL, 1000, page_token=token)
                found.update({run.info.run_id: run.data.tags[name] for run in runs if name in run.data.tags})
                token = runs.token
                if not token:
                    break
    except (MlflowException, OSError) as error:
        raise TrainingError(
            f"MLflow runs in {uri}",
            expected="a run store that can be read",
            got=(str(error).splitlines() or [type(error).__name__])[0][:300],
            do="start the server or mend its address in MLFLOW_TRACKING_URI, then run the same command again",
        ) from error
    return found


def tags_of(space: Workspace, run_id: str) -> dict[str, str]:
    """Tags of a run; empty where the store has no such run.

    Raises
    ------
    UsageError, TrainingError
        See `run_store`; the store cannot be opened.
    """
    run = _run_of(space, run_id)
    return {} if run is None else dict(run.data.tags)


def status_of(space: Workspace, run_id: str) -> str:
    """Status of a run, such as FINISHED; empty where the store has no such run. Errors as `tags_of`."""
    run = _run_of(space, run_id)
    return "" if run is None else str(run.info.status)


def _run_of(space: Workspace, run_id: str) -> Run | None:
    uri = run_store(space)
    if uri == space.tracking_uri and not (space.mlruns / "mlflow.db").is_file():
        return None
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    check_store(uri)
    try:
        run: Run = MlflowClient(tracking_uri=uri).get_run(run_id)
    except MlflowException:
        return None
    return run
