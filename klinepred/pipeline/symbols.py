"""In: a pipeline and a workspace. Out: the symbols it works on, of those that are stored."""

from __future__ import annotations

import logging

from klinepred.bars.store import list_symbols
from klinepred.calendar import Clock
from klinepred.errors import StoreError
from klinepred.paths import Workspace
from klinepred.settings import Pipeline

log = logging.getLogger("klinepred.pipeline")


def choose_symbols(run: Pipeline, space: Workspace, *, as_of: int | None = None) -> tuple[str, ...]:
    """The pipeline's symbols that are in the store, those absent being warned of; none there: all of its calendar.

    Parameters
    ----------
    as_of
        The store as it was at this version.

    Raises
    ------
    StoreError
        The store holds nothing that fits.
    """
    table = list_symbols(space, as_of=as_of)
    clock = Clock(run.data.calendar, run.data.hours)
    stored = dict(zip(table["symbol"], zip(table["calendar"], table["hours"], strict=True), strict=True))
    listed = [symbol for symbol in run.data.symbols if symbol in stored]
    absent = [symbol for symbol in run.data.symbols if symbol not in stored]
    if listed:
        if absent:
            log.warning("%d of %d symbols not in the store: %s", len(absent), len(run.data.symbols), ", ".join(absent))
        return tuple(listed)
    fitting = sorted(symbol for symbol, kind in stored.items() if kind == (clock.calendar, clock.hours))
    if fitting:
        if run.data.symbols:
            log.warning(
                "none of the pipeline's %d symbols is in the store: using all %d of calendar %s there",
                len(run.data.symbols),
                len(fitting),
                clock,
            )
        return tuple(fitting)
    others = sorted({f"{calendar} ({hours})" for calendar, hours in stored.values()})
    raise StoreError(
        f"symbols of pipeline {run.name}",
        expected=f"bars of its symbols, or of any with calendar {clock}",
        got=f"bars of calendar {', '.join(others)}" if others else "an empty store",
        do=f"ingest first: klinepred ingest -p {run.name}"
        + (f", or set --set data.calendar={others[0].split(' ')[0]}" if others else ""),
    )
