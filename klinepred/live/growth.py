"""In: a store, the version last seen. Out: the bars that came since, or that more has changed than bars coming."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from klinepred.bars import tables
from klinepred.bars.commits import read_commit
from klinepred.bars.parts import Part
from klinepred.bars.tables import BARS
from klinepred.errors import StoreError
from klinepred.paths import Workspace

MOST = 64
"""After more versions than this all is read anew."""


def grown_since(space: Workspace, version: int, newest: int, symbols: Sequence[str]) -> pl.DataFrame | None:
    """The bars of `symbols` that the versions after `version` up to `newest` added; None = they did more than that.

    Files rewritten with the same bars (compaction) are no change.
    """
    if not 0 <= newest - version <= MOST or version < 0:
        return None
    folder = space.store / BARS
    parts: list[Part] = []
    try:
        for number in range(version + 1, newest + 1):
            commit = read_commit(folder, number)
            if commit.operation == "compact":
                continue
            if commit.operation != "ingest" or commit.removed:
                return None
            parts += [Part(path, None, 0, rows, "") for path, rows in commit.added.items()]
    except StoreError:
        return None
    if any(not part.locate(folder).is_file() for part in parts):
        return None
    return tables.scan_parts(folder, BARS, parts).filter(pl.col("symbol").is_in(list(symbols))).collect()
