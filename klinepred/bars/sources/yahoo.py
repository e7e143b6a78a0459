"""In: symbols, a range of days. Out: their 5-minute bars from Yahoo through yfinance, one `Delivery` per symbol."""

from __future__ import annotations

import logging
import random
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Final

import polars as pl

from klinepred.bars.delivery import Delivery, Failure
from klinepred.bars.sources.yahoo_chart import MINOR, BusyError, Chart, FaultError, RefusedError, ask, client
from klinepred.calendar import Clock, grid, zone_of
from klinepred.schema import BAR, BAR_SCHEMA

log = logging.getLogger("klinepred.bars")

WALL: Final = timedelta(days=60)
"""Yahoo serves 5-minute bars of the last 60 calendar days only."""
BUSY_WAITS_S: Final = (2.0, 4.0, 8.0, 16.0, 30.0)
"""Waits after rate limits in a row, each lengthened by up to a half at random; a success begins anew with the first."""
BUSY_TOTAL_S: Final = 90.0
"""All such waits of one ingest together, before they are lengthened: at most 135 seconds. What is refused after that
is not asked for again, so that a ban is not prolonged."""
FAULT_WAITS_S: Final = (1.0, 3.0)
"""Waits after a broken answer or a time-out, per symbol, lengthened likewise."""
GIVE_UP_AFTER: Final = 3
"""Symbols in a row that are refused once the waits are used up, or that find Yahoo out of reach; the rest is not asked
for any more."""
AT_ONCE: Final = 4
"""Symbols asked for at the same time, each by a request of its own."""
LIMIT: Final = "Yahoo keeps 5-minute bars of the last 60 calendar days only"
BUSY: Final = "rate limit of Yahoo (HTTP 429): nothing was taken, what is stored is as it was; try again in an hour"


Outcome = Chart | BusyError | FaultError | RefusedError


@dataclass
class _Patience:
    """What is left of it in this ingest; `pauses` counts the waits so far."""

    step: int = 0
    pauses: int = 0
    left_s: float = BUSY_TOTAL_S
    refused_in_a_row: int = 0
    away_in_a_row: int = 0

    def next_wait(self) -> float | None:
        """Seconds before the next try after a rate limit, without the random part; None = give up."""
        if self.step >= len(BUSY_WAITS_S) or BUSY_WAITS_S[self.step] > self.left_s:
            self.refused_in_a_row += 1
            return None
        wait = BUSY_WAITS_S[self.step]
        self.step += 1
        self.left_s -= wait
        return wait

    def answered(self) -> None:
        """Yahoo served us."""
        self.step = self.refused_in_a_row = self.away_in_a_row = 0

    def used_up(self) -> Failure | None:
        """Why nothing is asked for any more."""
        if self.refused_in_a_row >= GIVE_UP_AFTER:
            return Failure("rate-limited", BUSY)
        if self.away_in_a_row >= GIVE_UP_AFTER:
            text = f"not asked for: Yahoo could not be reached for the {GIVE_UP_AFTER} symbols before"
            return Failure("failed", text)
        return None


def fetch(
    symbols: Sequence[str], *, clock: Clock, start: date | None, end: date | None, now: datetime
) -> Iterator[Delivery]:
    """Ask Yahoo for each symbol by a request of its own, four at the same time.

    Prices are not adjusted for splits or dividends after the fact, and stay in the currency unit Yahoo quotes (pence
    for London). Rows without prices are passed on as nulls; the bar that is still open is passed on too: cleaning
    holds it back.

    Parameters
    ----------
    start, end
        Days in the calendar's zone, both included. None: the 60 calendar days that Yahoo keeps, up to now. An earlier
        start is moved to the first whole day Yahoo keeps, and said.
    now
        Where the 60 days end (aware); nothing later is asked for.

    Yields
    ------
    Delivery
        Of one symbol, with its bars or with a `Failure`: rate-limited, unknown-symbol, failed; unchanged where the
        calendar has no finished bar in the range, and Yahoo none either.
    """
    zone = zone_of(clock.zone)
    first = (now - WALL).astimezone(zone).date() + timedelta(days=1)
    begin = datetime.combine(max(start or first, first), datetime.min.time(), zone)
    after = None if end is None else datetime.combine(end + timedelta(days=1), datetime.min.time(), zone)
    stop = now if after is None else min(now, after)  # also where yfinance would go by a clock of its own
    source = f"yahoo (yfinance {_version()})"
    names = list(dict.fromkeys(symbols))
    outside = _outside(start, end, first=first, begin=begin, now=now)
    if outside is not None:
        yield from (_nothing(name, outside, source) for name in names)
        return
    remarks: tuple[str, ...] = ()
    if start is not None and start < first:
        remarks = (f"{LIMIT}: asked from {start}, taken from {first}; what is stored from before stays",)
    patience = _Patience()
    with client() as yf, ThreadPoolExecutor(AT_ONCE, "yahoo") as pool:
        send = partial(_send, pool, partial(ask, yf, clock=clock, begin=begin, stop=stop))
        for at in range(0, len(names), AT_ONCE):
            group = names[at : at + AT_ONCE]
            outcomes = {} if patience.used_up() else send(group)
            pauses = patience.pauses
            for name in group:
                outcome = outcomes.get(name)
                if patience.pauses > pauses and isinstance(outcome, BusyError | FaultError):
                    outcome = None  # from before a wait: another try may be better
                answer = _settle(name, outcome, send=send, patience=patience)
                if isinstance(answer, Chart):
                    yield Delivery(frame=answer.frame, source=source, remarks=(*remarks, *_unit(name, answer)))
                    continue
                failure = answer.failure
                if answer.empty and _closed(clock, begin, stop, now=now):
                    failure = Failure("unchanged", f"{clock} has no finished bar in the days asked for")
                yield _nothing(name, failure, source, remarks)


def _outside(start: date | None, end: date | None, *, first: date, begin: datetime, now: datetime) -> Failure | None:
    """Why there is nothing to ask for in these days."""
    if end is not None and end < first:
        text = f"{LIMIT}, today from {first}: nothing of {start or 'the past'} to {end} can be had there"
        return Failure("failed", text)
    if begin > now:
        return Failure("failed", f"the start {start} lies after now, {now:%Y-%m-%d %H:%MZ}: no bar has been traded")
    return None


def _closed(clock: Clock, begin: datetime, stop: datetime, *, now: datetime) -> bool:
    """Whether the calendar has no bar in the range that is finished at `now`."""
    until = min(stop, now - BAR + timedelta(microseconds=1))
    return grid(clock, begin.astimezone(UTC), until.astimezone(UTC)).is_empty()


def _send(pool: Executor, one: Callable[[str], Chart], symbols: Sequence[str]) -> dict[str, Outcome]:
    """One request for each symbol, at the same time."""

    def outcome(symbol: str) -> Outcome:
        try:
            return one(symbol)
        except (BusyError, FaultError, RefusedError) as error:
            return error

    with warnings.catch_warnings():  # of pandas, inside yfinance; here, since it holds for all threads
        warnings.simplefilter("ignore")
        return dict(zip(symbols, pool.map(outcome, symbols), strict=True))


def _settle(
    symbol: str, outcome: Outcome | None, *, send: Callable[[Sequence[str]], dict[str, Outcome]], patience: _Patience
) -> Chart | RefusedError:
    """What becomes of a symbol in the end, with the waits that are left; `outcome` None: it was not asked for yet."""
    faults = list(FAULT_WAITS_S)
    while True:
        if outcome is None:
            spent = patience.used_up()
            if spent is not None:
                return RefusedError(spent)
            outcome = send([symbol])[symbol]
        if isinstance(outcome, Chart | RefusedError):
            patience.answered()
            return outcome
        if isinstance(outcome, BusyError):
            wait = patience.next_wait()
            if wait is None:
                return RefusedError(Failure("rate-limited", BUSY))
            pause = _lengthened(wait)
            log.info("Yahoo's rate limit at %s: waiting %.0f s", symbol, pause)
        elif faults:
            pause = _lengthened(faults.pop(0))
        else:
            patience.away_in_a_row = patience.away_in_a_row + 1 if outcome.away else 0
            lead = "Yahoo could not be reached" if outcome.away else "Yahoo's answer could not be used"
            return RefusedError(Failure("failed", f"{lead}: {outcome}"))
        patience.pauses += 1
        _sleep(pause)
        outcome = None


def _unit(symbol: str, chart: Chart) -> tuple[str, ...]:
    if chart.currency not in MINOR:
        return ()
    return (f"{symbol} is quoted in {chart.currency} ({MINOR[chart.currency]}): prices are stored as quoted",)


def _nothing(symbol: str, failure: Failure, source: str, remarks: tuple[str, ...] = ()) -> Delivery:
    return Delivery(frame=pl.DataFrame(schema=BAR_SCHEMA), source=source, failures={symbol: failure}, remarks=remarks)


def _lengthened(seconds: float) -> float:
    return seconds * (1.0 + random.random() / 2.0)  # noqa: S311  # jitter, not a secret


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def _version() -> str:
    from importlib.metadata import version

    return version("yfinance")
