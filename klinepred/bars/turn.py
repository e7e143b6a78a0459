"""In: a workspace. Out: the turn to write its store: one process at a time, no commit over one that was not seen."""

# Object storage has no locks that end with their process. There, a commit is put in only if nobody else has put in one
# of the same number (Delta's conditional put), and is never moved behind the other one: what it says was worked out
# from the version before. So of two machines one is refused, and nothing is stored twice.

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from klinepred.bars.commits import list_versions
from klinepred.bars.lock import WAIT_S, writer
from klinepred.errors import StoreError
from klinepred.objects import ObjectPath, Place
from klinepred.paths import Workspace

_SEEN: Final[ContextVar[dict[ObjectPath, int] | None]] = ContextVar("seen", default=None)
"""Versions of tables on object storage as the writer whose turn it is knows them; -1 = no table."""
TABLES: Final = ("bars", "symbols", "quarantine")


class OutrunError(StoreError):
    """Another machine was faster: nothing of the commit is in."""


@contextmanager
def store_writer(space: Workspace, *, wait_s: float = WAIT_S) -> Iterator[None]:
    """Be the only process of this folder that writes the store while the block runs; see also `need_unchanged`.

    Raises
    ------
    StoreError
        As `klinepred.bars.lock.writer`.
    """
    store = space.store
    with writer(space.data, wait_s=wait_s):
        if isinstance(store, Path):
            yield
            return
        mark = _SEEN.set({store / name: newest(store / name) for name in TABLES})
        try:
            yield
        finally:
            _SEEN.reset(mark)


def newest(folder: Place) -> int:
    """The version of the table at `folder`, by its log; -1 = there is no table."""
    return max(list_versions(folder), default=-1)


def need_unchanged(folder: ObjectPath) -> int:
    """The version of the table, which is the one it had when the writer's turn began, or after its last commit.

    Raises
    ------
    OutrunError
        Another machine has written since.
    """
    now = newest(folder)
    if now != (_SEEN.get() or {}).get(folder, now):
        raise outrun(folder)
    return now


def note_version(folder: ObjectPath, version: int) -> None:
    """Our own commit has made `version`."""
    seen = _SEEN.get()
    if seen is not None:
        seen[folder] = version


def outrun(folder: ObjectPath) -> OutrunError:
    """What to say where another machine was faster."""
    return OutrunError(
        f"store {folder}",
        expected="to be its only writer",
        got="a commit that another machine made at the same time",
        do="run the same command again; what is stored already is recognised, nothing is stored twice",
    )
