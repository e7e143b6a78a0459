"""In: names of calendars. Out: aliases become the calendar they stand for; nothing else changes."""

from __future__ import annotations

import pytest

from klinepred.aliases import CANONICAL, canonical
from klinepred.calendar import Clock, segments
from klinepred.errors import CalendarError


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("NYSE", "XNYS"), ("NASDAQ", "XNYS"), ("XNAS", "XNYS"), ("LSE", "XLON"), ("XNYS", "XNYS"), ("24/7", "24/7")],
)
def test_an_alias_is_the_calendar_it_stands_for(name: str, wanted: str) -> None:
    assert canonical(name) == wanted
    assert Clock(name) == Clock(wanted)
    assert str(Clock(name, "extended")) == f"{wanted}+extended"
    assert Clock.parse(f"{name}+extended") == Clock(wanted, "extended")


def test_the_names_taken_without_a_look_are_no_aliases() -> None:
    from exchange_calendars.calendar_utils import global_calendar_dispatcher

    assert {global_calendar_dispatcher.resolve_alias(name) for name in CANONICAL} == CANONICAL


def test_an_unknown_name_is_refused_at_first_use_as_it_was_written() -> None:
    assert canonical("nope") == "nope"
    with pytest.raises(CalendarError, match="'nope'"):
        segments(Clock("nope"))
