"""In: calls that wait for a server. Out: the same; a stop signal ends them soon where the server is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from klinepred.errors import TrainingError
from klinepred.training.runs import reach_server
from klinepred.training.signals import StopRequest, TrainingStopped, WaitOver, resume_advice

LOOK_S: Final = 0.25
"""So often it is looked whether a signal has come."""
GONE_S: Final = 2.0
"""So long after a signal an answer is waited for where nobody listens: a server may be starting again."""
SLOW_S: Final = 20.0
"""So long where somebody does: a model may be on its way."""

_given_up: dict[str, StopRequest] = {}
"""Stores that a wait was cut short for: who asks them next, a run around the stopped one say, waits no more."""


def hope_again(uri: str) -> None:
    """Wait for this store as long as it takes, whatever was before: something new begins."""
    _given_up.pop(uri, None)


@contextmanager
def stoppable(uri: str, *, checkpoint: Path | None) -> Iterator[None]:
    """Wait for the run store `uri` in the block as long as it takes, but not much longer once a stop signal has come.

    MLflow asks a server that went away again and again. Python runs handlers of signals in between, and ours only take
    a note: without this the command would end when MLflow gives up. A store in a file is never waited for so long.

    Parameters
    ----------
    checkpoint
        What continues the run, if it is there.

    Raises
    ------
    TrainingStopped
        A stop signal came (`klinepred.training.signals.StopRequest`), and the answer did not.
    """
    if (before := _given_up.get(uri)) is not None:
        raise _over(before, uri, checkpoint)
    request = StopRequest.inside[-1] if StopRequest.inside else None
    if request is None or uri.startswith("sqlite") or threading.current_thread() is not threading.main_thread():
        yield
        return
    over, lock = threading.Event(), threading.Lock()
    threading.Thread(target=_watch, args=(request, uri, over, lock), name="klinepred-patience", daemon=True).start()
    try:
        try:
            yield
        finally:
            with lock:
                over.set()
    except WaitOver as error:
        _given_up[uri] = request
        raise _over(request, uri, checkpoint) from error


def _watch(request: StopRequest, uri: str, over: threading.Event, lock: threading.Lock) -> None:
    """Give the request up when its signal is old enough, unless the block is over."""
    since: float | None = None
    while not over.wait(LOOK_S):
        if request.signal is None:
            continue
        since = time.monotonic() if since is None else since
        waited = time.monotonic() - since
        if waited > SLOW_S or (waited > GONE_S and not _listens(uri)):
            with lock:
                if not over.is_set():
                    request.give_up()
            return


def _listens(uri: str) -> bool:
    try:
        reach_server(uri, within_s=GONE_S)
    except TrainingError:
        return False
    return True


def _over(request: StopRequest, uri: str, checkpoint: Path | None) -> TrainingStopped:
    there = checkpoint is not None and checkpoint.is_file()
    return request.error(
        where=f"while the run store {uri} did not answer",
        do=resume_advice(checkpoint) if there else "start again; no checkpoint had been written yet",
    )
