"""In: something that predicts, a feed, a watch. Out: as each bar closes, the rows that are new, to a sink; for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

import polars as pl

from klinepred.bars.compaction import compact_after
from klinepred.calendar import Clock, newest_finished
from klinepred.errors import CalendarError, ConfigError, DatasetError, KlinepredError, UsageError
from klinepred.live.feed import LOCK_S, Feed, failures_of
from klinepred.live.stop import Stops
from klinepred.live.watch import Watch, next_close
from klinepred.paths import Workspace
from klinepred.prediction import Forecast
from klinepred.schema import BAR

log = logging.getLogger("klinepred.live")

FIRST_WAIT: Final = timedelta(seconds=2)
LONGEST_WAIT: Final = timedelta(seconds=60)
"""Waits between two tries of one bar double from the first to the longest."""
STORE_FAULTS: Final = (KlinepredError, OSError, pl.exceptions.PolarsError)
"""Reading the store while others compact, restore or vacuum it: the next try reads the version there is then."""
GIVEN_UP: Final = 3
"""A symbol that lacked so many bars in a row is not waited for."""

Sink = Callable[[pl.DataFrame, pl.DataFrame, int], None]
"""Takes new rows of `Predictions`, the same as prices, and the version of the store they were made from."""


class Predictor(Protocol):
    """Predicts from what the store holds by a moment.

    Attributes
    ----------
    version
        Of the store that the last `refresh` saw.
    """

    version: int

    @property
    def newest(self) -> Mapping[str, datetime]:
        """Open of the newest bar of each symbol there is, predicted or of the universe, by the last `refresh`."""

    def refresh(self, moment: datetime) -> None:
        """Take in what the store holds of bars that had closed by `moment`."""

    def forecast(self, moment: datetime) -> Forecast:
        """The newest bar of each symbol that had closed by `moment`."""

    def rest(self) -> None:
        """Whatever may be done before the next bar comes."""


@dataclass(frozen=True)
class Plan:
    """Whom to follow and how patiently.

    Attributes
    ----------
    clocks
        By symbol, of those predicted and those of the universe.
    universe
        Symbols that the cross-section is taken over.
    delay
        From a bar's close until the first look.
    patience
        From a bar's close until predictions are made without the symbols that have not come.
    until
        The last close that is followed; None = for ever.
    again
        Whether a bar that has not come is asked for again before the next one is due.
    """

    clocks: Mapping[str, Clock]
    universe: Sequence[str]
    delay: timedelta
    patience: timedelta
    until: datetime | None = None
    again: bool = True


@dataclass
class Follower:
    """One run of follow.

    A bar is predicted once, for all symbols that have it: when it is there of all, or when the plan's patience is at an
    end. What comes later changes nothing that was put out, and counts in what is predicted next.

    Attributes
    ----------
    feed
        None = another process brings the bars.
    shown
        By symbol, the newest bar whose prediction is out.
    """

    plan: Plan
    space: Workspace
    predictor: Predictor
    feed: Feed | None
    watch: Watch
    sink: Sink
    stops: Stops = field(default_factory=Stops)
    shown: dict[str, datetime] = field(default_factory=dict)
    _missed: dict[str, int] = field(default_factory=dict)
    _said: dict[str, str] = field(default_factory=dict)
    _remarks: tuple[str, ...] = ()

    def run(self) -> None:
        """Follow until the plan's end; without one only a signal (`Stopped`) ends it, or a sink that fails.

        Raises
        ------
        UsageError
            The source cannot be asked at all.
        """
        clocks = set(self.plan.clocks.values())
        now = self.watch.now()
        close = max((open_ + BAR for clock in clocks if (open_ := newest_finished(clock, now))), default=now)
        self._bar(close)
        while True:
            ahead = next_close(clocks, close)
            if ahead is None or (self.plan.until is not None and ahead > self.plan.until):
                return
            if ahead - close > BAR:
                log.info("the market is closed: the next bar ends at %s", f"{ahead:%Y-%m-%d %H:%MZ}")
            self.watch.wait_until(ahead + self.plan.delay)
            close = self._newest(ahead, clocks)
            self._bar(close)

    def _newest(self, close: datetime, clocks: set[Clock]) -> datetime:
        """The newest close that is due: during a long sleep others than the awaited one may have passed."""
        while (later := next_close(clocks, close)) is not None and later + self.plan.delay <= self.watch.now():
            if self.plan.until is not None and later > self.plan.until:
                break
            close = later
        return close

    def _bar(self, close: datetime) -> None:
        """Bring the bar that ends at `close` in, wait for who is late, put its predictions out."""
        following = next_close(set(self.plan.clocks.values()), close) or close + BAR
        wait = FIRST_WAIT
        while True:
            there, late = self._look(close)
            now = self.watch.now()
            waited = [name for name in late if self._missed.get(name, 0) < GIVEN_UP]
            deadline = close + self.plan.patience
            if there and (not waited or now >= deadline):
                break
            if not self.plan.again or now + wait >= min(following, close + BAR) + self.plan.delay:
                break  # it gives way to the next bar
            self.watch.wait_until(min(now + wait, deadline) if there else now + wait)
            wait = min(2 * wait, LONGEST_WAIT)
        self._missed = {name: self._missed.get(name, 0) + 1 for name in late}
        self._put_out(close, late)
        if self.feed is not None:
            compact_after(self.space, wait_s=LOCK_S)
        if there:
            self.predictor.rest()

    def _look(self, close: datetime) -> tuple[bool, list[str]]:
        """Ask the feed; whether anything of this bar is there, and whose is not though their clocks have it."""
        self._ask(close)
        try:
            self.predictor.refresh(close)
        except STORE_FAULTS as error:
            self._say("store", f"{_reason(error)}; trying again")
            return False, []
        self._heard("store")
        due = {clock for clock in set(self.plan.clocks.values()) if newest_finished(clock, close) == close - BAR}
        expected = sorted(name for name, clock in self.plan.clocks.items() if clock in due)
        late = [name for name in expected if self.predictor.newest.get(name) != close - BAR]
        return len(late) < len(expected), late

    def _ask(self, close: datetime) -> None:
        if self.feed is None:
            return
        try:
            report = self.feed(max(self.watch.now(), close))
        except (ConfigError, CalendarError):
            raise
        except KlinepredError as error:
            if isinstance(error, UsageError):
                raise
            self._say("feed", f"{error.summary}: {error.got}; trying again ({error.do})")
            return
        self._heard("feed")
        failures = failures_of(report)
        for row in report.symbols:
            if row.symbol in failures:
                self._say(row.symbol, f"{row.symbol}: {failures[row.symbol]}")
            else:
                self._heard(row.symbol)
        for line in report.remarks:
            if line not in self._remarks:
                log.info("%s", line)
        self._remarks = report.remarks

    def _put_out(self, close: datetime, late: Sequence[str]) -> None:
        """Rows that are new."""
        fresh = [name for name, ts in self.predictor.newest.items() if ts > self.shown.get(name, ts - BAR)]
        if late:  # said once for as long as the same ones lack
            self._say("late", f"no bar that ends at {close:%Y-%m-%d %H:%MZ} of {_few(late)}", of=late)
        else:
            self._heard("late")
        if not fresh:
            return
        try:
            answer = self.predictor.forecast(close)
        except DatasetError as error:
            self._say("forecast", f"no prediction: {error.got}")
            return
        except STORE_FAULTS as error:
            self._say("forecast", f"no prediction: {_reason(error)}")
            return
        for symbol in answer.rows["symbol"]:
            self._heard(f"no prediction of {symbol}")
        for symbol, reason in answer.failures.items():
            if f"no prediction of {symbol}" not in self._said:  # the reason counts bars, and changes with each
                self._say(f"no prediction of {symbol}", f"no prediction: {symbol}: {reason}")
        new = answer.rows["symbol"].is_in(fresh)
        rows, prices = answer.rows.filter(new), answer.prices.filter(new)
        with self.stops.held():
            if rows.height:
                self.sink(rows, prices, self.predictor.version)
            self.shown.update(rows.select("symbol", "bar_ts").iter_rows())

    def _say(self, about: str, line: str, *, of: Sequence[str] | None = None) -> None:
        """Warn, but not of the same again and again; `of`: what makes it the same, if not its words."""
        same = line if of is None else "\n".join(of)
        if self._said.get(about) != same:
            self._said[about] = same
            log.warning("%s", line)

    def _heard(self, about: str) -> None:
        self._said.pop(about, None)


def _reason(error: Exception) -> str:
    if isinstance(error, KlinepredError):
        return f"{error.summary}: {error.got}"
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
