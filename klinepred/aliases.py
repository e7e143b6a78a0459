"""In: the name of a calendar. Out: the name by which it is kept."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

CANONICAL: Final = frozenset({"24/7", "CMES", "XETR", "XHKG", "XKRX", "XLON", "XNYS", "XPAR", "XSHG", "XTKS", "XTSE"})
"""Names known to be no alias; for these exchange_calendars need not be loaded to find out."""


@lru_cache(maxsize=256)
def canonical(name: str) -> str:
    """The calendar that `name` is an alias of; a name that is none, or not known at all, is its own."""
    if name in CANONICAL:
        return name
    from exchange_calendars.calendar_utils import global_calendar_dispatcher
    from exchange_calendars.errors import InvalidCalendarName

    try:
        return str(global_calendar_dispatcher.resolve_alias(name))
    except InvalidCalendarName:  # said at first use, with names that are near
        return name
