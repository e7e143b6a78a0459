"""In: this process's environment. Out: what recording runs needs of it, for a process on another machine to put up."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

STORE: Final = "MLFLOW_TRACKING_URI"
FAMILIES: Final = ("MLFLOW_TRACKING_", "MLFLOW_HTTP_", "MLFLOW_S3_")
"""Beginnings of the names: the store and how it is spoken to, credentials for it among them."""


def record_settings() -> dict[str, str]:
    """Variables by name. They may be secret: to be handed from process to process, never to be logged or recorded."""
    return {name: value for name, value in os.environ.items() if name.startswith(FAMILIES)}


def put_up(settings: Mapping[str, str]) -> None:
    """Record where the process does that `settings` come from, whatever this machine has been told.

    Other variables of these families that this machine has, and the other has not, stay.
    """
    os.environ.pop(STORE, None)
    os.environ.update(settings)
