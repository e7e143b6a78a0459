"""In: when steps ended and how many labelled bars each had. Out: the speed of late, and the time left."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable


class Pace:
    """Speed over the last `window` steps; time spent between epochs is not counted."""

    def __init__(self, *, window: int = 20, clock: Callable[[], float] = time.perf_counter) -> None:
        self._steps: deque[tuple[float, int]] = deque(maxlen=window)
        self._clock = clock
        self._start = clock()

    def begin(self) -> None:
        """The first of a row of steps begins now."""
        self._start = self._clock()

    def end(self, bars: int) -> None:
        """A step ends now, had so many labelled bars, and the next one begins."""
        now = self._clock()
        self._steps.append((now - self._start, bars))
        self._start = now

    @property
    def bars_per_s(self) -> float:
        """Labelled bars per second; 0 before the first step."""
        seconds = sum(took for took, _ in self._steps)
        return sum(bars for _, bars in self._steps) / seconds if seconds > 0 else 0.0

    def eta_s(self, steps: int) -> float:
        """Seconds that `steps` more steps take at this speed."""
        return steps * sum(took for took, _ in self._steps) / max(1, len(self._steps))
