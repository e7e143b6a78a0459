"""In: a workspace. Out: the store its runs are kept in, and how many there are; needs neither torch nor MLflow."""

from __future__ import annotations

import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from klinepred.errors import TrainingError, UsageError
from klinepred.paths import Workspace

DATABASES: Final = ("sqlite", "mysql", "postgresql", "mssql")
"""What addresses of databases begin with."""
KNOCK_S: Final = 10.0
"""So long a server may take to be reached."""
TEST_AFTER: Final = "test_after"
"""Tag of a run: the last day before its test part (2026-05-04)."""
TRIAL: Final = "klinepred.trial"
"""Tag of a run that is one trial of a search of settings: its number."""


def run_store(space: Workspace) -> str:
    """URI of the store that runs are kept in: MLFLOW_TRACKING_URI if set, else the workspace's SQLite file.

    Raises
    ------
    UsageError
        MLFLOW_TRACKING_URI names a folder: MLflow gave up that kind of store; or a database in memory.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI") or space.tracking_uri
    scheme = urlsplit(uri).scheme
    if uri != "databricks" and (scheme in {"", "file"} or len(scheme) == 1):
        raise UsageError(
            f"MLFLOW_TRACKING_URI={uri}",
            expected="a database or a server, such as sqlite:////path/mlflow.db or http://host:5000",
            got="a folder, a kind of store that MLflow no longer supports",
            do=f"unset MLFLOW_TRACKING_URI (runs then go to {space.mlruns / 'mlflow.db'}), or set it to a database",
        )
    if uri.startswith("sqlite") and uri.partition("://")[2].partition("?")[0] in {"", "/", "/:memory:"}:
        raise UsageError(
            f"MLFLOW_TRACKING_URI={uri}",
            expected="a database that outlives the command, such as sqlite:////path/mlflow.db",
            got="one in memory",
            do=f"unset MLFLOW_TRACKING_URI (runs then go to {space.mlruns / 'mlflow.db'}), or name a file",
        )
    return uri


def check_store(uri: str) -> None:
    """Open an SQLite store once, creating the empty file and its folders as MLflow would; knock at a server once.

    MLflow tries ten times to open a database, over more than a minute and a half, and asks a server that is gone for
    minutes: right for one that is still starting, but a file that cannot be opened now will not open then. Databases
    of other kinds are not touched.

    Raises
    ------
    TrainingError
        The file cannot be opened or is no database; the driver of another database is not installed; or nobody listens
        at the server's address.
    """
    if urlsplit(uri).scheme in ("http", "https"):
        reach_server(uri)
        return
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    if not uri.startswith(DATABASES):
        return
    try:
        url = make_url(uri)
        url.get_dialect().import_dbapi()
    except (ImportError, ArgumentError, NoSuchModuleError) as error:
        raise TrainingError(
            f"MLflow run store {uri}",
            expected="a database that SQLAlchemy has a driver for",
            got=str(error),
            do="install the driver, or name the one there is, such as postgresql+psycopg2://",
        ) from error
    if not uri.startswith("sqlite") or (name := url.database) in (None, "", ":memory:"):
        return
    try:
        if not name.startswith("file:"):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(name, timeout=30.0, uri=name.startswith("file:"))) as store:
            store.execute("pragma schema_version").fetchone()
    except (sqlite3.Error, OSError) as error:
        raise TrainingError(
            f"MLflow run store {uri}",
            expected="an SQLite file that can be opened",
            got=str(error),
            do="mend its permissions, restore it from a backup or move it away, then train again",
        ) from error


def reach_server(uri: str, *, within_s: float = KNOCK_S) -> None:
    """Connect to the server of a run store and hang up; a store of another kind, or behind a proxy, is not asked.

    Raises
    ------
    TrainingError
        Nobody listens there.
    """
    place = urlsplit(uri)
    host = place.hostname or ""
    if place.scheme not in ("http", "https") or (place.scheme in getproxies() and not proxy_bypass(host)):
        return
    try:
        port = place.port or (443 if place.scheme == "https" else 80)
        socket.create_connection((host, port), timeout=within_s).close()
    except (OSError, ValueError) as error:
        raise TrainingError(
            f"MLflow server {uri}",
            expected=f"a server that can be reached within {within_s:.0f} s",
            got=str(error.strerror or error) if isinstance(error, OSError) else str(error),
            do="start it, mend MLFLOW_TRACKING_URI, or unset it (runs then go to the workspace), and type this again",
        ) from error


def count_runs(space: Workspace) -> int:
    """Runs in the workspace's own store that were not deleted; 0 where there is no store yet.

    Raises
    ------
    TrainingError
        The store is there but cannot be read.
    """
    path = space.mlruns / "mlflow.db"
    if not path.is_file():
        return 0
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as store:
            if not store.execute("select 1 from sqlite_master where name = 'runs'").fetchone():
                return 0
            (number,) = store.execute("select count(*) from runs where lifecycle_stage = 'active'").fetchone()
    except sqlite3.Error as error:
        raise TrainingError(
            f"run store {path}",
            expected="a database of MLflow",
            got=str(error),
            do="restore it from a backup, or move it away: the next training makes a new one",
        ) from error
    return int(number)
