"""In: how a checkpoint is written, how often. Out: `Saver`: writes it when told, and says when the next is due."""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 0.02
"""Most of the time that checkpoints within an epoch may take."""


class Saver:
    """Writes checkpoints; within an epoch one is due `minutes` after the last, later where writing takes long."""

    def __init__(
        self, write: Callable[[], None], *, minutes: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._seconds = 60.0 * minutes
        self._clock = clock
        self._next = clock() + self._seconds

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint within the epoch."""
        return self._clock() >= self._next

    def __call__(self) -> None:
        start = self._clock()
        self._write()
        now = self._clock()
        self._next = now + max(self._seconds, (now - start) / SHARE)
