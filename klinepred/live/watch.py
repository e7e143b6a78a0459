"""In: clocks, a moment. Out: the next close of a bar by them; the time, real or replayed, and a wait until a moment."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import polars as pl

from klinepred.calendar import Clock, segments
from klinepred.schema import BAR

NAP: Final = timedelta(seconds=30)
"""Longest sleep at one go: the machine may be suspended, and its clock set, meanwhile."""


class Watch(Protocol):
    """Tells the time and waits."""

    def now(self) -> datetime:
        """Aware, UTC."""

    def wait_until(self, moment: datetime) -> None:
        """Return at `moment`, or at once where it is past."""


class RealWatch:
    """The machine's clock."""

    def now(self) -> datetime:
        """Aware, UTC."""
        return datetime.now(UTC)

    def wait_until(self, moment: datetime) -> None:
        """Sleep; a signal whose handler raises ends it."""
        while (left := moment - self.now()) > timedelta(0):
            time.sleep(min(left, NAP).total_seconds())


class ReplayWatch:
    """A clock that stands still until it is told to wait, and then is there at once."""

    def __init__(self, start: datetime) -> None:
        self._now = start.astimezone(UTC)

    def now(self) -> datetime:
        """Aware, UTC."""
        return self._now

    def wait_until(self, moment: datetime) -> None:
        """Jump; never back."""
        self._now = max(self._now, moment)


def next_close(clocks: Iterable[Clock], after: datetime) -> datetime | None:
    """The first close of a bar later than `after`, by any of the clocks; None where their calendars end before."""
    found = [close for clock in clocks if (close := _next_close(clock, after)) is not None]
    return min(found, default=None)


def _next_close(clock: Clock, after: datetime) -> datetime | None:
    # the last bar of a stretch may be cut short; it counts as finished five minutes after its open all the same
    ahead = segments(clock).filter(pl.col("close") + BAR > after)
    for start, end in ahead.select("open", "close").head(2).iter_rows():
        bars = -((start - end) // BAR)
        number = max(1, (after - start) // BAR + 1)
        if number <= bars:
            close: datetime = start + number * BAR
            return close
    return None
