"""In: batches of metrics. Out: each written by a thread of its own, in order, while training goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Queue
from typing import Final

from klinepred.training.tracker import Metric

WAITING: Final = 64
"""Batches that may wait; of more, `put` waits until there is room."""


class Outbox:
    """Hands batches to `write` one after another, off the thread that trains.

    A fault of `write` is kept: nothing is written after it, and every later `put` and `flush` raises it, so that a run
    whose record is broken ends there instead of going on without one.

    Parameters
    ----------
    write
        Called in the outbox's thread; one call at a time.
    """

    def __init__(self, write: Callable[[Sequence[Metric]], None]) -> None:
        self._write = write
        self._queue: Queue[Sequence[Metric] | None] = Queue(maxsize=WAITING)
        self._thread: threading.Thread | None = None
        self._fault: BaseException | None = None

    def put(self, batch: Sequence[Metric]) -> None:
        """Take a batch over; raises what an earlier one has failed with."""
        self._complain()
        if self._thread is None:
            # It never keeps the process alive: whoever ends it in order calls `close`, and a kill waits for nobody.
            self._thread = threading.Thread(target=self._work, name="klinepred-metrics", daemon=True)
            self._thread.start()
        self._queue.put(list(batch))

    def flush(self) -> None:
        """Return when all that was taken over is written; raises what has failed."""
        self._queue.join()
        self._complain()

    def close(self) -> None:
        """`flush`, and end the thread; a later `put` starts another."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join()
        self._complain()

    def _complain(self) -> None:
        if self._fault is not None:
            raise self._fault

    def _work(self) -> None:
        while (batch := self._queue.get()) is not None:
            try:
                if self._fault is None:
                    self._write(batch)
            except BaseException as error:
                self._fault = error
            finally:
                self._queue.task_done()
        self._queue.task_done()
