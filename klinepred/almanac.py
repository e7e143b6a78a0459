"""In: the name of a calendar's table, how to work it out. Out: the table, worked out once and kept on the disk."""

# exchange_calendars and pandas take over half a second to load and to lay out thirty years of one venue. The table is
# the same for every workspace, so it lies in the user's cache folder; deleting it costs that half second.

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final
from uuid import uuid4

import polars as pl
from platformdirs import user_cache_path
from polars.exceptions import PanicException, PolarsError

FOLDER: Final = "KLINEPRED_CACHE"
"""Environment variable: another folder than the user's cache; empty = keep nothing."""
_CODE: Final = Path(__file__).with_name("sessions.py")
"""What works the tables out: other code, other table."""
_TOOLS: Final = ("exchange_calendars", "pandas", "polars", "tzdata")

log = logging.getLogger("klinepred.calendar")


def kept(name: str, work_out: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    """The table `name` as an earlier process kept it, else worked out now and kept.

    What is kept is used only if it was made by the same versions of all that goes into it and is whole. Where nothing
    can be kept (no home, a full or read-only disk) it is worked out each time.
    """
    path = _path(name)
    if path is None:
        return work_out()
    table = _read(path)
    if table is None:
        table = work_out()
        _keep(table, path)
    return table


def _path(name: str) -> Path | None:
    folder = os.environ.get(FOLDER)
    if folder == "":
        return None
    root = Path(folder) if folder else user_cache_path("klinepred", appauthor=False)
    digest = hashlib.sha256("|".join([name, *(f"{tool} {_version(tool)}" for tool in _TOOLS)]).encode())
    digest.update(_CODE.read_bytes())
    return root / "calendars" / f"{digest.hexdigest()[:32]}.arrow"


def _version(tool: str) -> str:
    try:
        return version(tool)
    except ModuleNotFoundError:  # tzdata may be the system's
        return "none"


def _read(path: Path) -> pl.DataFrame | None:
    """What lies at `path` if it is whole: its last column is a digest of the others."""
    try:
        table = pl.read_ipc(path)
        digest = table.drop_in_place("digest").to_list()
    except (OSError, PolarsError, PanicException):
        return None
    return table if digest and set(digest) == {_digest(table)} else None


def _digest(table: pl.DataFrame) -> str:
    return hashlib.sha256(table.write_ipc(None).getvalue()).hexdigest()


def _keep(table: pl.DataFrame, path: Path) -> None:
    part = path.with_name(f"{path.stem}.{uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        table.with_columns(digest=pl.lit(_digest(table))).write_ipc(part, compression="lz4")
        part.replace(path)
    except (OSError, PolarsError, PanicException) as error:
        log.debug("calendars are not kept: %s", error)
        with suppress(OSError):
            part.unlink(missing_ok=True)
