"""In: the folder of a Delta table. Out: its commits as its log tells them, and the version that `--as-of` means."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import polars as pl
from deltalake import DeltaTable

from klinepred.errors import StoreError
from klinepred.objects import Place, options_for

LOG: Final = "_delta_log"
NOTE: Final = "klinepred."
"""Keys of a commit that klinepred wrote begin with this."""
_JSON: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\b.*\.parquet")


@dataclass(frozen=True)
class Commit:
    """One commit of a table.

    Attributes
    ----------
    time
        When it was made, UTC, by the clock of the machine that made it.
    operation
        The word klinepred gave it (ingest, delete, restore, compact …), else Delta's own.
    note
        What klinepred wrote into it, by keys without `klinepred.`: source, new, revised …
    added
        Path of each data file it added and the number of rows in it.
    removed
        Paths of the data files it took out of the table; the files themselves stay on the disk.
    """

    version: int
    time: datetime
    operation: str
    note: Mapping[str, str]
    added: Mapping[str, int]
    removed: frozenset[str]


def open_delta(folder: Place, version: int | None = None) -> DeltaTable:
    """The table at `folder`, which is there; errors as deltalake raises them."""
    return DeltaTable(str(folder), version=version, storage_options=options_for(folder))


def list_versions(folder: Place) -> list[int]:
    """Versions whose commits are in the log, ascending; empty where there is no table."""
    try:
        names = [path.name for path in (folder / LOG).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(found[1]) for name in names if (found := _JSON.fullmatch(name)))


def read_commit(folder: Place, version: int) -> Commit:
    """The commit that made `version`.

    Raises
    ------
    StoreError
        Its file in the log is damaged.
    """
    path = folder / LOG / f"{version:020}.json"
    try:
        actions = [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
        about: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        time = datetime.fromtimestamp(about.get("timestamp", path.stat().st_mtime * 1000) / 1000, UTC)
        note = {key.removeprefix(NOTE): str(value) for key, value in about.items() if key.startswith(NOTE)}
        adds = [action["add"] for action in actions if "add" in action]
        return Commit(
            version=version,
            time=time,
            operation=note.get("operation")
            or ("rescale" if "rescaled" in note else "")
            or ("ingest" if "source" in note else str(about.get("operation", "")).lower()),
            note=note,
            added={add["path"]: int(json.loads(add.get("stats") or "{}").get("numRecords", 0)) for add in adds},
            removed=frozenset(action["remove"]["path"] for action in actions if "remove" in action),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise StoreError(
            f"store {folder}",
            expected=f"a readable entry of its log for version {version}",
            got=f"{path.name}: {(str(error).splitlines() or ['damaged'])[0][:200]}",
            do=f"put {path.name} back from a backup; the data files of the store are not touched by this",
        ) from error


def read_commits(folder: Place) -> list[Commit]:
    """All commits from the first version that can still be opened, ascending.

    Where the log no longer starts at version 0 (another program cleaned it up), the first commit returned stands for
    the whole table at that version.

    Raises
    ------
    StoreError
        The log is damaged.
    """
    versions = list_versions(folder)
    absent = sorted({*range(versions[0], versions[-1])} - {*versions}) if versions else []
    if absent:
        raise StoreError(
            f"store {folder}",
            expected=f"a log with every version from {versions[0]} to {versions[-1]}",
            got=f"none for {', '.join(map(str, absent[:5]))}{' …' if len(absent) > 5 else ''}",
            do="put the missing files of _delta_log back from a backup",
        )
    if not versions or versions[0] == 0:
        return [read_commit(folder, version) for version in versions]
    start = _first(folder, versions)
    table = open_delta(folder, start)
    actions = pl.DataFrame(table.get_add_actions(flatten=True)).select("path", "num_records")
    whole = {str(path): int(rows or 0) for path, rows in actions.iter_rows()}
    made = read_commit(folder, start) if start in versions else None
    base = Commit(
        version=start,
        time=made.time if made else datetime.fromtimestamp(_checkpoint(folder, start).stat().st_mtime, UTC),
        operation=made.operation if made else "",
        note=made.note if made else {},
        added=whole,
        removed=frozenset(),
    )
    return [base, *(read_commit(folder, version) for version in versions if version > start)]


def find_version(folder: Place, as_of: int | datetime) -> int:
    """The version that `as_of` means: itself, or the latest one made by that moment.

    Raises
    ------
    StoreError
        There is no such version; the message names the first and the last there is, with their times.
    """
    versions = list_versions(folder)
    if not versions:
        raise StoreError(
            f"store {folder}", expected="a table with a log", got="none", do="run klinepred ingest, or check -w"
        )
    first, last = _first(folder, versions), versions[-1]
    if isinstance(as_of, int):
        if first <= as_of <= last:
            return as_of
        wanted = f"version {as_of}"
    else:
        made = [commit.version for commit in read_commits(folder) if commit.time <= as_of]
        if made:
            return made[-1]
        wanted = f"the store at {as_of:%Y-%m-%dT%H:%M:%SZ}"
    ends = " to ".join(
        f"{version} ({commit.time:%Y-%m-%dT%H:%M:%SZ})"
        for version in dict.fromkeys((first, last))
        for commit in [next(commit for commit in read_commits(folder) if commit.version == version)]
    )
    raise StoreError(
        wanted,
        expected=f"a version that {folder} has: {ends}",
        got="one after the last" if isinstance(as_of, int) and as_of > last else "one before the first",
        do="see klinepred bars history, and pass --as-of with one of its versions or a moment after the first",
    )


def _first(folder: Place, versions: list[int]) -> int:
    """The first version that can be opened: 0, or that of the first checkpoint of a log that was cleaned up."""
    if versions[0] == 0:
        return 0
    names = [path.name for path in (folder / LOG).iterdir()]
    points = sorted(int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name)))
    if not points:
        raise StoreError(
            f"store {folder}",
            expected="a log that begins with version 0 or a checkpoint",
            got=f"one that begins with version {versions[0]}",
            do="put the missing files of _delta_log back from a backup",
        )
    return points[0]


def _checkpoint(folder: Place, version: int) -> Place:
    found: list[Place] = [*(folder / LOG).glob(f"{version:020}.checkpoint*.parquet")]
    return found[0]
