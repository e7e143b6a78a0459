"""In: predictions just made. Out: those for bars still to come in the ledger; what kept them out, on stderr."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

from klinepred.errors import StoreError
from klinepred.paths import Workspace

if TYPE_CHECKING:
    import polars as pl

    from klinepred.model.bundle import ModelBundle

log = logging.getLogger("klinepred.live")


def keep(
    rows: pl.DataFrame, bundle: ModelBundle, space: Workspace, *, version: int | None, now: datetime | None
) -> bool:
    """Record live predictions; False where the ledger could not be written, which is said but costs no prediction."""
    from klinepred.live.ledger import record

    try:
        done = record(space, rows, store_version=-1 if version is None else version, now=now, universe=bundle.universe)
    except StoreError as error:
        log.error("the predictions above are not in the ledger (--no-record leaves it out): %s", error)  # noqa: TRY400
        return False
    if done.sentence():
        log.info("%s", done.sentence())
    return True
