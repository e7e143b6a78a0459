"""In: the log of the bars table. Out: a row per version: who wrote what when, and whether it can still be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

import polars as pl

from klinepred.bars.commits import Commit, read_commits
from klinepred.bars.tables import BARS
from klinepred.objects import inner_name
from klinepred.paths import Workspace
from klinepred.schema import TS

SCHEMA: Final = {
    "version": pl.Int64(),
    "time": TS,
    "operation": pl.String(),
    "source": pl.String(),
    "new": pl.Int64(),
    "revised": pl.Int64(),
    "deleted": pl.Int64(),
    "rows": pl.Int64(),
    "files": pl.Int64(),
    "readable": pl.Boolean(),
    "release": pl.String(),
    "rescaled": pl.String(),
}

SHOWN: Final = 3


def list_history(space: Workspace) -> pl.DataFrame:
    """The versions of the bars table, oldest first.

    Returns
    -------
    polars.DataFrame
        version, time (of the commit), operation (ingest, delete, restore, compact, rescale, settings, or Delta's own
        word), source, new, revised, deleted (bars; null where the commit does not say), rows and files (of the whole
        table), readable (all its data files are there), release (of klinepred), rescaled (JSON: which
        symbols followed which split by which factor; null where none). Empty where nothing was ever stored.

    Raises
    ------
    StoreError
        The log is damaged.
    """
    folder = space.store / BARS
    there = {inner_name(path, folder) for path in folder.rglob("*.parquet")}
    rows = []
    for commit, live in walk_versions(read_commits(folder)):
        counts = [int(commit.note[key]) if key in commit.note else None for key in ("new", "revised", "deleted")]
        rows.append(
            (
                commit.version,
                commit.time,
                commit.operation,
                commit.note.get("source"),
                *counts,
                sum(live.values()),
                len(live),
                all(unquote(path) in there for path in live),
                commit.note.get("release"),
                commit.note.get("rescaled"),
            )
        )
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def shorten(history: pl.DataFrame) -> pl.DataFrame:
    """The same for people: `rescaled` in a few words, `SPL x 1/2, 312 bars`, a symbol after the other."""
    words = [None if note is None else _phrase(note) for note in history["rescaled"]]
    return history.with_columns(pl.Series("rescaled", words, dtype=pl.String))


def _phrase(note: str) -> str:
    try:
        records = json.loads(note)
        parts = [f"{one['symbol']} x {one['factor']}, {one['bars']:,} bars" for one in records[:SHOWN]]
    except (ValueError, KeyError, TypeError):
        return "a record that cannot be read"
    more = f"; and {len(records) - SHOWN:,} more symbols" if len(records) > SHOWN else ""
    return "; ".join(parts) + more


def walk_versions(commits: list[Commit]) -> Iterator[tuple[Commit, dict[str, int]]]:
    """Each commit with the data files (and rows) its version is made of; one dictionary, changed on the way."""
    live: dict[str, int] = {}
    for commit in commits:
        for path in commit.removed:
            live.pop(path, None)
        live.update(commit.added)
        yield commit, live
