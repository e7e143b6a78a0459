"""In: the data folder, a version of the bars. Out: the `symbols` table that belongs to it: each symbol's clock."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from klinepred.bars import tables
from klinepred.bars.commits import find_version, list_versions, read_commit, read_commits
from klinepred.bars.tables import BARS, SYMBOLS
from klinepred.objects import Place


def read_symbols(folder: Place, as_of: int | datetime | None = None) -> pl.DataFrame:
    """Calendar, hours, zone and source of each symbol, as they belong to the bars at `as_of` (None = now).

    Bars and clocks are two tables, so they cannot change in one commit. Instead each commit of bars names the version
    of `symbols` that holds for it: until the bars are in, a change of clocks means nothing.

    Raises
    ------
    StoreError
        There is no such version, or the store is damaged.
    """
    return tables.scan_table(folder, SYMBOLS, bound_version(folder, as_of)).collect()


def bound_version(folder: Place, as_of: int | datetime | None = None) -> int | None:
    """The version of `symbols` that belongs to the bars at `as_of`; None = the latest (no bars stored yet).

    Commits made before klinepred wrote it down belong to the latest `symbols` of their time. Errors as `read_symbols`.
    """
    versions = list_versions(folder / BARS)
    if not versions:
        return None
    version = versions[-1] if as_of is None else find_version(folder / BARS, as_of)
    for number in reversed([have for have in versions if have <= version]):
        made = read_commit(folder / BARS, number)
        bound = made.note.get(tables.BOUND.removeprefix("klinepred."))
        if bound is not None:
            return int(bound)
        if "source" in made.note:
            known = [commit.version for commit in read_commits(folder / SYMBOLS) if commit.time <= made.time]
            return known[-1] if known else None
    return None
