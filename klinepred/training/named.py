"""In: a workspace. Out: the versions of the bar store that its models and runs were made from, and by which."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

from klinepred.errors import ModelError, TrainingError
from klinepred.model.bundle import TABLE
from klinepred.paths import Workspace
from klinepred.training.runs import run_store

TAG: Final = "store_version"


def named_versions(space: Workspace) -> dict[int, str]:
    """Store versions that a model on the shelf or a run names, each with who names it.

    Runs are those of the workspace's own store, deleted ones included as long as MLflow keeps them, and those of
    MLFLOW_TRACKING_URI if that is set. A checkpoint belongs to a run.

    Raises
    ------
    ModelError, TrainingError, UsageError
        A model or the store of runs cannot be read: what it names is not known then.
    """
    found: dict[int, str] = {}
    for who, version in [*_models(space), *_runs(space)]:
        try:
            found.setdefault(int(str(version)), who)
        except ValueError:
            continue  # a run made without a store
    return found


def _models(space: Workspace) -> Iterable[tuple[str, object]]:
    for path in sorted(space.trained.glob(f"*/{TABLE}")):
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            yield f"model {path.parent.name}", table["provenance"].get(TAG)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(
                f"model {path.parent}",
                expected=f"a {TABLE} that says which version of the store it was made from",
                got="one that cannot be read",
                do="put it back from a backup, or remove this model's folder if nobody needs it",
            ) from error


def _runs(space: Workspace) -> Iterable[tuple[str, object]]:
    own = space.mlruns / "mlflow.db"
    if own.is_file():
        yield from _own_runs(own)
    if run_store(space) != space.tracking_uri:
        from klinepred.training.review import tags_of_runs

        for run, version in tags_of_runs(space, TAG).items():
            yield f"run {run}", version


def _own_runs(path: Path) -> list[tuple[str, object]]:
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as store:
            if not store.execute("select 1 from sqlite_master where name = 'tags'").fetchone():
                return []
            query = "select runs.name, tags.value from tags join runs using (run_uuid) where tags.key = ?"
            return [(f"run {name}", value) for name, value in store.execute(query, (TAG,))]
    except sqlite3.Error as error:
        raise TrainingError(
            f"run store {path}",
            expected="a database of MLflow",
            got=str(error),
            do="restore it from a backup, or move it away if none of its runs matters",
        ) from error
