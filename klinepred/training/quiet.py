"""In: calls into MLflow. Out: the same without its chatter, and its errors in one line."""

from __future__ import annotations

import logging
import os
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from klinepred.masked import masked

PATIENCE: Final = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "4", "MLFLOW_HTTP_REQUEST_TIMEOUT": "60"}
"""How long MLflow asks a server that went away, unless the user says otherwise: half a minute where nobody listens, not
four (its own: 7 times, each twice as late as the one before), and a minute for each answer, not two."""


def first_line(error: BaseException) -> str:
    """What the database itself said, if it is behind `error`, else the first line of the error; without passwords."""
    link: BaseException | None = error
    while link is not None and not isinstance(link, sqlite3.Error):
        link = link.__cause__ or link.__context__
    lines = str(link or error).splitlines() or [type(error).__name__]
    return masked(lines[0])[:300]


@contextmanager
def quiet() -> Iterator[None]:
    """Import and connect without usage reports, start-up messages and warnings about MLflow's own libraries."""
    for name in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
        os.environ.setdefault(name, "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # it is drawn wherever tqdm is installed
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # results belong there, and no password
    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("MLFLOW_UV_AUTO_DETECT", "false")  # else a uv.lock of the folder around goes into models
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # what fails is raised as well, without its traceback
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
