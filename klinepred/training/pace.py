"""In: when batches came, when steps ended, their labelled bars. Out: the speed of late, the time left."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable


class Pace:
    """Speed over the last `window` steps; time spent between epochs is not counted."""

    def __init__(self, *, window: int = 20, clock: Callable[[], float] = time.perf_counter) -> None:
        self._steps: deque[tuple[float, float, int]] = deque(maxlen=window)
        self._clock = clock
        self._start = self._ready = clock()

    def begin(self) -> None:
        """The first of a row of steps begins now, with the wait for its batch."""
        self._start = self._ready = self._clock()

    def ready(self) -> float:
        """The batch is here now; seconds it was waited for."""
        self._ready = self._clock()
        return self._ready - self._start

    def end(self, bars: int) -> None:
        """A step ends now, had so many labelled bars, and the wait for the next batch begins."""
        now = self._clock()
        self._steps.append((now - self._start, self._ready - self._start, bars))
        self._start = self._ready = now

    @property
    def bars_per_s(self) -> float:
        """Labelled bars per second; 0 before the first step."""
        seconds = sum(took for took, _, _ in self._steps)
        return sum(bars for _, _, bars in self._steps) / seconds if seconds > 0 else 0.0

    @property
    def loader_share(self) -> float:
        """Share of the time that went into waiting for batches; 0 before the first step."""
        seconds = sum(took for took, _, _ in self._steps)
        return sum(waited for _, waited, _ in self._steps) / seconds if seconds > 0 else 0.0

    def eta_s(self, steps: int) -> float:
        """Seconds that `steps` more steps take at this speed."""
        return steps * sum(took for took, _, _ in self._steps) / max(1, len(self._steps))
