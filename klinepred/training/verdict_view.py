"""In: a workspace. Out: a saved view of MLflow's run list, verdict and certificate in it; its address."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Final

from klinepred.paths import Workspace
from klinepred.training.moved import FAMILY

KEY: Final = "klinepred"
TAG: Final = f"mlflow.sharedViewState.{KEY}"
"""Tag of an experiment in which MLflow's UI keeps the view it lists as `Verdicts`; other versions ignore it."""
WIDTHS: Final = {
    "tags.`verdict`": 190,
    "tags.`leak_certificate`": 150,
    "metrics.`test_ic`": 120,
    "metrics.`test_net_bps`": 130,
    "metrics.`val_ic`": 120,
    "tags.`precision`": 110,
}
"""Columns from left to right, in pixels."""


def verdict_view(time_ms: int) -> str:
    """The view as MLflow's UI would save it.

    Parameters
    ----------
    time_ms
        When it was made, Unix time.
    """
    shown = [*WIDTHS, "attributes.`Dataset`", "attributes.`Models`"]
    state = {"selectedColumns": shown, "columnOrder": list(WIDTHS), "columnWidths": WIDTHS}
    return json.dumps({"name": "Verdicts", "createdAt": time_ms, "updatedAt": time_ms, "state": json.dumps(state)})


def view_paths(space: Workspace) -> dict[str, str]:
    """By pipeline, what follows the server's address to open the view; none without a store of its own."""
    path = space.mlruns / "mlflow.db"
    if not path.is_file():
        return {}
    query = (
        "select experiments.name, experiments.experiment_id from experiments join experiment_tags"
        " using (experiment_id) where key = ? and lifecycle_stage = 'active' and name like ? order by name"
    )
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as store:
            found = store.execute(query, (TAG, f"{FAMILY}%")).fetchall()
    except sqlite3.Error:
        return {}  # a store of an older MLflow, before its server has migrated it
    return {
        name.removeprefix(FAMILY): f"/#/experiments/{number}/runs?viewStateShareKey={KEY}" for name, number in found
    }
