"""In: a workspace whose folder was moved or copied. Out: its run store, naming artifacts where they lie now."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from typing import Final
from urllib.parse import quote

from klinepred.errors import TrainingError
from klinepred.paths import Workspace
from klinepred.places import read_places

log = logging.getLogger("klinepred.training")

# Where MLflow keeps absolute URIs of artifacts: table, column.
_PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)


FAMILY: Final = "klinepred/"
"""What names of experiments begin with; the pipeline's name follows."""
DEFAULT: Final = "Default"
"""MLflow's own experiment, number 0."""


def artifact_location(space: Workspace, experiment: str) -> str:
    """URI of the folder in which the artifacts of an experiment lie, for stores that keep none themselves."""
    home = read_places(space.root).artifacts or space.artifacts.as_uri()
    return f"{home}/{quote(experiment.removeprefix(FAMILY))}"


def adopt_moved(space: Workspace) -> bool:
    """`adopt_moved_artifacts` for all experiments of the workspace's own store. Raises as it does."""
    path = space.mlruns / "mlflow.db"
    if not path.is_file():
        return False
    try:
        with closing(sqlite3.connect(path, timeout=30.0)) as store:
            if not store.execute("select 1 from sqlite_master where name = 'experiments'").fetchone():
                return False
            found = store.execute("select name from experiments where name like ?", (f"{FAMILY}%",)).fetchall()
    except sqlite3.Error as error:
        raise _damaged(space, error) from error
    place_default(space)
    names = [str(name) for (name,) in found]
    moved = [adopt_moved_artifacts(space, experiment=name, location=artifact_location(space, name)) for name in names]
    return any(moved)


def place_default(space: Workspace) -> None:
    """Give MLflow's own experiment a place in the workspace: MLflow takes the folder that a command was typed in.

    Raises
    ------
    TrainingError
        As `adopt_moved_artifacts`.
    """
    location = artifact_location(space, DEFAULT)
    if adopt_moved_artifacts(space, experiment=DEFAULT, location=location):
        return
    try:
        with closing(sqlite3.connect(space.mlruns / "mlflow.db", timeout=30.0)) as store, store:
            store.execute(
                "update experiments set artifact_location = ? where experiment_id = 0 and name = ?"
                " and artifact_location like '%mlruns/0' and artifact_location <> ?",
                (location, DEFAULT, location),
            )
    except sqlite3.Error as error:
        raise _damaged(space, error) from error


def adopt_moved_artifacts(space: Workspace, *, experiment: str, location: str) -> bool:
    """Rewrite absolute artifact URIs that begin where the workspace lay before; whether there were any.

    MLflow keeps absolute paths. Without this, runs of a moved workspace would write to the old folder, and old
    artifacts would not be found.

    Parameters
    ----------
    experiment, location
        An experiment of this workspace and the artifact location that it should have.

    Raises
    ------
    TrainingError
        The store cannot be read or written.
    """
    path = space.mlruns / "mlflow.db"
    if not path.is_file():
        return False
    try:
        with closing(sqlite3.connect(path, timeout=30.0)) as store, store:
            tables = {name for (name,) in store.execute("select name from sqlite_master where type = 'table'")}
            if "experiments" not in tables:
                return False
            row = store.execute("select artifact_location from experiments where name = ?", (experiment,)).fetchone()
            new = space.artifacts.as_uri()
            tail = location.removeprefix(new)
            if row is None or row[0] == location or not str(row[0]).endswith(tail) or _is_far(str(row[0])):
                return False
            old = str(row[0]).removesuffix(tail)
            for table, column in _PLACES:
                if table in tables:
                    store.execute(
                        f"update {table} set {column} = ? || substr({column}, ?)"  # noqa: S608  # names from above
                        f" where substr({column}, 1, ?) = ?",
                        (new, len(old) + 1, len(old) + 1, f"{old}/"),
                    )
    except sqlite3.Error as error:
        raise _damaged(space, error) from error
    log.info("the workspace has moved: artifacts of its runs are now looked for under %s", space.artifacts)
    return True


def _is_far(uri: str) -> bool:
    """Whether it is an address, which does not move with the workspace."""
    return "://" in uri and not uri.startswith("file:")


def _damaged(space: Workspace, error: sqlite3.Error) -> TrainingError:
    return TrainingError(
        f"run store {space.mlruns / 'mlflow.db'}",
        expected="an SQLite database of MLflow",
        got=str(error),
        do="move the file away to begin a new one, or restore it from a copy",
    )
