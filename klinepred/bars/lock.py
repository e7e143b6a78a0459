"""In: the data folder. Out: the one writer's lock, or an error that names who holds it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from klinepred.errors import StoreError

WAIT_S: Final = 600.0


@contextmanager
def writer(folder: Path, *, wait_s: float = WAIT_S) -> Iterator[None]:
    """Be the only process that writes the tables under `folder` while the block runs.

    The lock is the operating system's: it goes with the process that held it, however that ended.

    Raises
    ------
    StoreError
        The folder cannot be written, or another process held the lock for all of `wait_s` seconds (its id is named).
    """
    lock = FileLock(folder / ".writer.lock")
    note = folder / ".writer.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=wait_s)
    except Timeout as error:
        raise StoreError(
            f"store {folder}",
            expected="to be its only writer",
            got=f"{_holder(note)} writing to it for more than {wait_s:g} s",
            do="wait until that process ends, then run the same command again",
        ) from error
    except OSError as error:
        raise StoreError(
            f"store {folder}",
            expected="a folder that can be written",
            got=str(error),
            do="free the disk or the permissions, or choose another workspace with -w",
        ) from error
    try:
        note.write_text(json.dumps({"pid": os.getpid(), "since": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}))
        yield
    except OSError as error:
        raise StoreError(
            f"store {folder}",
            expected="room and permission to write",
            got=str(error),
            do="free the disk or mend the permissions or limits, and run the same command again; "
            "stored bars are as they were",
        ) from error
    finally:
        lock.release()


def _holder(note: Path) -> str:
    try:
        who = json.loads(note.read_text())
        return f"process {who['pid']} (since {who['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
