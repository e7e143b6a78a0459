"""In: data files to add and take out, a note. Out: one commit of a Delta table, and properties that keep its past."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from deltalake import CommitProperties, DeltaTable, Field, Schema
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType
from deltalake.transaction import PostCommitHookProperties, create_table_with_add_actions

from klinepred import __version__
from klinepred.bars.commits import LOG, NOTE, list_versions, open_delta, read_commit
from klinepred.bars.parts import MONTH, Part
from klinepred.bars.turn import need_unchanged, note_version, outrun
from klinepred.errors import StoreError
from klinepred.objects import ObjectPath, Place, options_for

log = logging.getLogger("klinepred.bars")

CHECKPOINT_EVERY: Final = 50
"""Versions between two checkpoints of the log: what opening the table reads besides them."""
KEEP: Final[Mapping[str, str]] = {
    "delta.enableExpiredLogCleanup": "false",
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.deletedFileRetentionDuration": "interval 36500 days",
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
}
"""Left to itself, delta-rs removes logs older than 30 days with each checkpoint; the versions before are then lost."""
_HOOK: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
# our own checkpoints: one that fails must not make a commit that is in look like a failure


def commit(
    folder: Place,
    *,
    schema: Mapping[str, str],
    add: Sequence[Part] = (),
    remove: Sequence[Part] = (),
    note: Mapping[str, str],
    changes: bool = True,
) -> int:
    """Make one commit; the caller holds the writer's lock. The first one makes the table.

    Parameters
    ----------
    folder
        Of the table.
    schema
        Delta's type of each column.
    note
        Written into the commit, by keys that begin with `klinepred.`; the release of klinepred is added.
    changes
        False where the rows of the table stay the same (compaction).

    Returns
    -------
    int
        The new version.

    Raises
    ------
    DeltaError, OSError
        The commit is not in.
    """
    fields = Schema([Field(name, PrimitiveType(kind)) for name, kind in schema.items()])
    by = [MONTH] if MONTH in schema else []
    base = need_unchanged(folder) if isinstance(folder, ObjectPath) else max(list_versions(folder), default=-1)
    try:
        if base < 0:
            create_table_with_add_actions(
                str(folder),
                fields,
                [part.add(changes=True) for part in add],
                partition_by=by,
                configuration=KEEP,
                storage_options=options_for(folder),
                commit_properties=_properties(note),
                post_commithook_properties=_HOOK,
            )
        else:
            table = open_delta(folder, None if isinstance(folder, Path) else base)
            if keep_past(table):
                base += 1
                table = open_delta(folder, None if isinstance(folder, Path) else base)
            table.create_write_transaction(
                [*(part.add(changes=changes) for part in add), *(part.remove(changes=changes) for part in remove)],
                mode="append",
                schema=fields,
                partition_by=by,
                commit_properties=_properties(note, alone=isinstance(folder, ObjectPath)),
                post_commithook_properties=_HOOK,
            )
    except DeltaError as error:
        if isinstance(folder, Path) or max(list_versions(folder), default=-1) <= base:
            raise
        if not _went_in(folder, base + 1, add=add, remove=remove):
            raise outrun(folder) from error
    if isinstance(folder, ObjectPath):
        note_version(folder, base + 1)
        _checkpoint(folder, base + 1)
        return base + 1
    version = list_versions(folder)[-1]
    _to_disk(folder, version)
    return version


def _went_in(folder: Place, version: int, *, add: Sequence[Part], remove: Sequence[Part]) -> bool:
    """Whether a commit is in although storage refused it: its first answer was lost, and it was put in twice."""
    made = read_commit(folder, version)
    ours = [{unquote(part.path) for part in parts} for parts in (add, remove)]
    return [{*map(unquote, paths)} for paths in (made.added, made.removed)] == ours


def keep_past(table: DeltaTable) -> bool:
    """Set the properties that keep old versions readable, as a commit of its own, unless they are set.

    Returns
    -------
    bool
        Whether there was something to set.
    """
    have = table.metadata().configuration
    if all(have.get(name) == value for name, value in KEEP.items()):
        return False
    table.alter.set_table_properties(
        dict(KEEP), commit_properties=_properties({f"{NOTE}operation": "settings"}), post_commithook_properties=_HOOK
    )
    return True


def _properties(note: Mapping[str, str], *, alone: bool = False) -> CommitProperties:
    """`alone`: the commit has this number or is refused."""
    return CommitProperties(
        custom_metadata={f"{NOTE}release": __version__, **note}, max_commit_retries=0 if alone else None
    )


def _to_disk(folder: Path, version: int) -> None:
    """Flush the commit to the disk, and write a checkpoint now and then; the commit stands if either fails."""
    try:
        for path in (folder / LOG / f"{version:020}.json", folder / LOG):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    except OSError as error:
        _warn(folder, version, error)
        return
    _checkpoint(folder, version)


def _checkpoint(folder: Place, version: int) -> None:
    """Write a checkpoint now and then; the commit stands if that fails."""
    try:
        last = max((int(path.name[:20]) for path in (folder / LOG).glob("*.checkpoint*")), default=0)
        if version - last >= CHECKPOINT_EVERY:
            open_delta(folder).create_checkpoint()
    except (DeltaError, OSError, StoreError) as error:
        _warn(folder, version, error)


def _warn(folder: Place, version: int, error: Exception) -> None:
    log.warning("version %d of %s is stored, but what speeds up opening it is not: %s", version, folder, error)
