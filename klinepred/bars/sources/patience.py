"""In: rate limits and faults of a server, one by one. Out: how long to wait before the next try, or to stop."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Final

from klinepred.bars.delivery import Failure

BUSY_WAITS_S: Final = (2.0, 4.0, 8.0, 16.0, 30.0)
"""Waits after rate limits in a row, each lengthened by up to a half at random; a success begins anew with the first."""
BUSY_TOTAL_S: Final = 90.0
"""All such waits together, before they are lengthened: at most 135 seconds. What is refused after that is not asked
for again, so that a ban is not prolonged."""
FAULT_WAITS_S: Final = (1.0, 3.0)
"""Waits after a broken answer or a time-out, lengthened likewise."""
GIVE_UP_AFTER: Final = 3
"""Symbols in a row that are refused once the waits are used up, or that find the server out of reach; the rest is not
asked for any more."""


@dataclass
class Patience:
    """What is left of it with one server in one ingest.

    Attributes
    ----------
    server
        Its name, for messages.
    busy
        What is said of a symbol that stays refused.
    pauses
        The waits so far.
    """

    server: str
    busy: str
    step: int = 0
    pauses: int = 0
    left_s: float = BUSY_TOTAL_S
    refused_in_a_row: int = 0
    away_in_a_row: int = 0

    def next_wait(self, at_least_s: float = 0.0) -> float | None:
        """Seconds before the next try after a rate limit, without the random part; None = give up.

        Parameters
        ----------
        at_least_s
            How long the server itself said to wait.
        """
        wait = None if self.step >= len(BUSY_WAITS_S) else max(BUSY_WAITS_S[self.step], at_least_s)
        if wait is None or wait > self.left_s:
            self.refused_in_a_row += 1
            return None
        self.step += 1
        self.left_s -= wait
        return wait

    def answered(self) -> None:
        """The server served us."""
        self.step = self.refused_in_a_row = self.away_in_a_row = 0

    def used_up(self) -> Failure | None:
        """Why nothing is asked for any more."""
        if self.refused_in_a_row >= GIVE_UP_AFTER:
            return Failure("rate-limited", self.busy)
        if self.away_in_a_row >= GIVE_UP_AFTER:
            text = f"not asked for: {self.server} could not be reached for the {GIVE_UP_AFTER} symbols before"
            return Failure("failed", text)
        return None


def lengthened(seconds: float) -> float:
    """`seconds` and up to a half more, at random, so that many clients do not come back at once."""
    return seconds * (1.0 + random.random() / 2.0)  # noqa: S311  # jitter, not a secret


def rest(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)
