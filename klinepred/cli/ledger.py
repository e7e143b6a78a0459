"""In: predictions just made, bars just taken in. Out: the ledger kept and graded; a ledger that fails costs neither."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

from klinepred.errors import KlinepredError, StoreError
from klinepred.paths import Workspace

if TYPE_CHECKING:
    import polars as pl

    from klinepred.model.bundle import ModelBundle

log = logging.getLogger("klinepred.live")


def keep_live(
    rows: pl.DataFrame, bundle: ModelBundle, space: Workspace, *, version: int | None, now: datetime | None
) -> bool:
    """Record live predictions; False where the ledger could not be written, which is said but costs no prediction."""
    from klinepred.live.ledger import record

    try:
        done = record(space, rows, store_version=-1 if version is None else version, now=now, universe=bundle.universe)
    except StoreError as error:
        log.error("these predictions are not in the ledger (--no-record leaves it out): %s", error)  # noqa: TRY400
        return False
    if done.sentence():
        log.info("%s", done.sentence())
    return True


def grade_ledger(space: Workspace, *, now: datetime | None) -> None:
    """Grade what the new bars tell; nothing is loaded where there is no ledger."""
    if not (space.data / "ledger").is_dir():
        return
    from klinepred.live.grade import grade_open

    try:
        done = grade_open(space, now=now)
    except (KlinepredError, OSError) as error:
        log.warning("the bars are stored, but live predictions are not graded: %s", error)
        return
    if done.sentence():
        log.info("%s", done.sentence())
