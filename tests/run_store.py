"""In: MLflow, wherever this process has loaded it. Out: its tables are made once, and copied for further stores."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from typing import Any

MADE: list[str] = []
"""The tables as SQL, once this process has had MLflow make them."""


def make_tables_once() -> None:
    """Let MLflow take the tables of its first empty store for all others: its fifty migrations take two seconds.

    A test in a process of its own makes them as MLflow does. Nothing happens before MLflow has been imported.
    """
    module = sys.modules.get("mlflow.store.db.utils")
    if module is None or hasattr(module._initialize_tables, "copies"):
        return
    real = module._initialize_tables

    def copied(engine: Any) -> None:
        if engine.dialect.name != "sqlite":
            real(engine)
            return
        with closing(engine.raw_connection()) as raw:
            store: sqlite3.Connection = raw.driver_connection
            if store.execute("select count(*) from sqlite_master").fetchone() != (0,):
                real(engine)  # tables of an older version, or of somebody else
            elif MADE:
                store.executescript(MADE[0])
            else:
                real(engine)
                MADE.append("\n".join(store.iterdump()))

    copied.copies = True  # type: ignore[attr-defined]
    module._initialize_tables = copied  # type: ignore[attr-defined]
