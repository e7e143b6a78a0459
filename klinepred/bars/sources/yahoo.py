"""In: symbols, a range of days. Out: their 5-minute bars from Yahoo through yfinance, many symbols a `Delivery`."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Final

from klinepred.bars.delivery import Delivery, Failure
from klinepred.bars.sources.batch import Batch
from klinepred.bars.sources.faults import BusyError, FaultError, RefusedError
from klinepred.bars.sources.patience import FAULT_WAITS_S, Patience, lengthened, rest
from klinepred.bars.sources.yahoo_chart import NAME, Chart, ask, client
from klinepred.calendar import Clock, grid, zone_of
from klinepred.headway import Work
from klinepred.schema import BAR

log = logging.getLogger("klinepred.bars")

WALL: Final = timedelta(days=60)
"""Yahoo serves 5-minute bars of the last 60 calendar days only."""
AT_ONCE: Final = 4
"""Symbols asked for at the same time, each by a request of its own."""
LIMIT: Final = "Yahoo keeps 5-minute bars of the last 60 calendar days only"
BUSY: Final = "rate limit of Yahoo (HTTP 429): nothing was taken, what is stored is as it was; try again in an hour"


Outcome = Chart | BusyError | FaultError | RefusedError


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
        Of up to 32 symbols, or of what half a minute brought: bars, or a `Failure` of a symbol: rate-limited,
        unknown-symbol, failed; unchanged where the calendar has no finished bar in the range, and Yahoo none either.
        Symbols are spelt as Yahoo spells them, in capitals.
    """
    zone = zone_of(clock.zone)
    first = (now - WALL).astimezone(zone).date() + timedelta(days=1)
    begin = datetime.combine(max(start or first, first), datetime.min.time(), zone)
    after = None if end is None else datetime.combine(end + timedelta(days=1), datetime.min.time(), zone)
    stop = now if after is None else min(now, after)  # also where yfinance would go by a clock of its own
    source = f"yahoo (yfinance {_version()})"
    spelt = _spelt(symbols)
    batch = Batch(source)
    outside = _outside(start, end, first=first, begin=begin, now=now)
    if outside is not None:
        for name, given in spelt.items():
            batch.fail(name, outside, remarks=_renamed(given, name))
        yield batch.deliver()
        return
    remarks: tuple[str, ...] = ()
    if start is not None and start < first:
        remarks = (f"{LIMIT}: asked from {start}, taken from {first}; what is stored from before stays",)
    patience = Patience("Yahoo", BUSY)
    names = list(spelt)
    asking = Work("symbols asked of Yahoo", total=len(names))
    with client() as yf, ThreadPoolExecutor(AT_ONCE, "yahoo") as pool, asking:
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
                    said = (*remarks, *_renamed(spelt[name], answer.symbol), *answer.remarks)
                    batch.add(answer.symbol, answer.frame, splits=answer.splits, remarks=said)
                    continue
                failure = answer.failure
                if answer.empty and _closed(clock, begin, stop, now=now):
                    failure = Failure("unchanged", f"{clock} has no finished bar in the days asked for")
                batch.fail(name, failure, remarks=(*remarks, *_renamed(spelt[name], name)))
            asking.step(len(group))
            if batch.full():
                yield batch.deliver()
    if not batch.empty():
        yield batch.deliver()


def _spelt(symbols: Sequence[str]) -> dict[str, list[str]]:
    """Each symbol as Yahoo writes it, in capitals, with the spellings it was asked for by."""
    spelt: dict[str, list[str]] = {}
    for given in symbols:
        spelt.setdefault(given.upper() if NAME.fullmatch(given) else given, []).append(given)
    return spelt


def _renamed(given: Sequence[str], name: str) -> tuple[str, ...]:
    return tuple(f"{text} is {name} at Yahoo: its bars are kept under that name" for text in given if text != name)


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
    symbol: str, outcome: Outcome | None, *, send: Callable[[Sequence[str]], dict[str, Outcome]], patience: Patience
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
            pause = lengthened(wait)
            log.info("Yahoo's rate limit at %s: waiting %.0f s", symbol, pause)
        elif faults:
            pause = lengthened(faults.pop(0))
        else:
            patience.away_in_a_row = patience.away_in_a_row + 1 if outcome.away else 0
            lead = "Yahoo could not be reached" if outcome.away else "Yahoo's answer could not be used"
            return RefusedError(Failure("failed", f"{lead}: {outcome}"))
        patience.pauses += 1
        rest(pause)
        outcome = None


def _version() -> str:
    from importlib.metadata import version

    return version("yfinance")
