"""In: a date or stamp as somebody wrote it. Out: the moment in UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

FIRST, LAST = 1900, 2200
"""Years; beyond, there is no room for the sessions before and after a moment."""
SPAN: Final = f"from {FIRST} to {LAST}"


def read_moment(text: str) -> datetime:
    """ISO 8601, with an offset or Z; without one it is UTC.

    Raises
    ------
    ValueError
        It is no such stamp, or lies in no market's time.
    """
    stamp = datetime.fromisoformat(text.strip())
    if not FIRST <= stamp.year <= LAST:
        raise ValueError(f"the year {stamp.year}")
    return stamp.replace(tzinfo=UTC) if stamp.tzinfo is None else stamp.astimezone(UTC)
