"""In: bars just taken in. Out: the ledger's predictions of them graded; a ledger that fails costs no ingest."""

from __future__ import annotations

import logging
from datetime import datetime

from klinepred.errors import KlinepredError
from klinepred.paths import Workspace

log = logging.getLogger("klinepred.live")


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
