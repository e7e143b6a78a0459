"""In: moments around nights, weekends, half days. Out: the next close is the calendar's."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta

import pytest

from klinepred.calendar import Clock
from klinepred.live.stop import Stopped, Stops
from klinepred.live.watch import RealWatch, ReplayWatch, next_close


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("clock", "after", "close"),
    [
        ("XNYS", "2026-06-26T19:50", "2026-06-26T19:55"),
        ("XNYS", "2026-06-26T19:52:30", "2026-06-26T19:55"),
        ("XNYS", "2026-06-26T19:55", "2026-06-26T20:00"),
        ("XNYS", "2026-06-26T20:00", "2026-06-29T13:35"),  # a weekend
        ("XNYS", "2026-06-29T13:30", "2026-06-29T13:35"),
        ("XNYS", "2026-11-27T17:58", "2026-11-27T18:00"),  # a half day
        ("XNYS", "2026-11-27T18:00", "2026-11-30T14:35"),
        ("XHKG", "2026-06-25T04:00", "2026-06-25T05:05"),  # lunch
        ("24/7", "2026-06-27T23:59", "2026-06-28T00:00"),
    ],
)
def test_the_next_close_follows_the_calendar(clock: str, after: str, close: str) -> None:
    assert next_close([Clock(clock)], utc(after)) == utc(close)


def test_of_several_calendars_the_first_close_counts() -> None:
    both = [Clock("XNYS"), Clock("24/7")]
    assert next_close(both, utc("2026-06-26T20:00")) == utc("2026-06-26T20:05")
    assert next_close([], utc("2026-06-26T20:00")) is None


def test_a_replayed_clock_jumps_and_never_goes_back() -> None:
    watch = ReplayWatch(utc("2026-06-26T20:00"))
    watch.wait_until(utc("2026-06-29T13:35"))
    watch.wait_until(utc("2026-06-26T20:05"))
    assert watch.now() == utc("2026-06-29T13:35")


def test_the_real_clock_does_not_wait_for_what_is_past() -> None:
    watch = RealWatch()
    watch.wait_until(watch.now() - timedelta(days=1))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_wait_and_a_held_write_is_done_first(number: signal.Signals, code: int) -> None:
    done = []

    def work(*, held: bool) -> None:
        with Stops() as stops:
            if not held:
                signal.raise_signal(number)
                done.append("never")
            with stops.held():
                signal.raise_signal(number)
                done.append("written")
            done.append("never")

    for held in (False, True):
        with pytest.raises(Stopped) as stop:
            work(held=held)
        assert stop.value.exit_code == code
    assert done == ["written"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
