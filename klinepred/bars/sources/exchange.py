"""In: markets of an exchange, a range of days, what is stored already. Out: their 5-minute bars, page by page."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Final, TypeVar

import polars as pl

from klinepred.bars.delivery import Delivery, Failure
from klinepred.bars.sources.batch import Batch
from klinepred.bars.sources.exchange_page import Venue, find_market, load_markets, page_size, read_page, venue
from klinepred.bars.sources.faults import BusyError, FaultError, RefusedError
from klinepred.bars.sources.patience import BUSY_TOTAL_S, FAULT_WAITS_S, Patience, lengthened, rest
from klinepred.headway import Work, stepwise
from klinepred.schema import BAR

log = logging.getLogger("klinepred.bars")

Span = tuple[datetime, datetime]
FIRST_TIME: Final = timedelta(days=60)
"""How far back a market is asked for of which nothing is stored, without `--start`."""
AGAIN: Final = 12 * BAR
"""The last hour stored is asked for again: bars that were revised late, or taken in before they were finished."""
LATE: Final = timedelta(days=1)
"""Where the first bar comes so much later than asked for, that is said."""

BUSY: Final = "rate limit of {}: what is stored is as it was"
Answer = TypeVar("Answer")


def fetch(
    symbols: Sequence[str],
    *,
    exchange: str,
    start: date | None,
    end: date | None,
    now: datetime,
    stored: Mapping[str, Sequence[Span]],
    barred: Mapping[str, Failure],
) -> Iterator[Delivery]:
    """Ask an exchange for each market, page by page from the oldest bar wanted to the newest.

    Parameters
    ----------
    symbols
        Names that ccxt gives the markets: `BTC/USDT`, `BTC/USDT:USDT`.
    exchange
        Name that ccxt gives the exchange.
    start, end
        Days in UTC, both included. Both: all of those days. `start` alone: what is not stored of the days since, and
        the last hour stored. None: from the last hour stored, or the last 60 days. The end is `now` without `end`.
    now
        Nothing later is asked for (aware).
    stored
        By market the stretches of time without a gap that are stored, each first and last bar, in time order.
    barred
        Markets that must not be taken from this exchange.

    Yields
    ------
    Delivery
        Of one or more symbols, or a part of one: whatever is enough for a commit, so that a process which is killed
        goes on from there. The bar that is still open is passed on: cleaning holds it back. Failures:
        rate-limited, unknown-symbol, failed; unchanged where there is no finished bar to be had.

    Raises
    ------
    SourceError, UsageError
        ccxt is not installed; it has no such exchange; that gives no 5-minute bars.
    """
    stop = now if end is None else min(now, _midnight(end + timedelta(days=1)))
    with venue(exchange) as place:
        batch = Batch(place.source)
        send = partial(_send, patience=Patience(exchange, BUSY.format(exchange)))
        shut = _ahead(start, now) or _shut(place, send)
        taken: set[str] = set()
        for given in stepwise(dict.fromkeys(symbols), f"markets asked of {exchange}"):
            name = shut or find_market(place, given)
            if isinstance(name, str) and name in barred:
                name = barred[name]
            if isinstance(name, Failure):
                batch.fail(given, name)
                continue
            renamed = f"{given} is {name} at {exchange}: its bars are kept under that name"
            remarks = (renamed,) if name != given else ()
            if name in taken:
                batch.note(name, remarks)
                continue
            taken.add(name)
            spans = _wanted(stored.get(name, ()), start, end, stop)
            got: Span | None = None
            failure: Failure | None = None
            try:
                for page in _pages(place, name, spans, stop, send=send):
                    batch.add(name, page, remarks=remarks)
                    low, high = page.select(low=pl.col("ts").min(), high=pl.col("ts").max()).row(0)
                    got = (got[0] if got else low, high)
                    if batch.full():
                        yield batch.deliver()
                        log.info("… %s up to %s", name, _text(high))
            except RefusedError as error:
                failure = error.failure
            failure, remark = _outcome(name, exchange, (spans[0][0], stop), got, failure)
            if failure is not None:
                batch.fail(name, failure, remarks=remarks)
            elif remark:
                batch.note(name, [remark])
            if batch.full():
                yield batch.deliver()
        if not batch.empty():
            yield batch.deliver()


def _ahead(start: date | None, now: datetime) -> Failure | None:
    if start is None or _midnight(start) <= now:
        return None
    return Failure("failed", f"the start {start} lies after now, {_text(now)}: no bar has been traded")


def _shut(place: Venue, send: Callable[..., None]) -> Failure | None:
    """Why not one market of the exchange can be asked for."""
    try:
        send("its list of markets", partial(load_markets, place))
    except RefusedError as error:
        return error.failure
    return None


def _wanted(stored: Sequence[Span], start: date | None, end: date | None, stop: datetime) -> list[Span]:
    """Stretches of time to ask for, from inclusive, until exclusive, in time order."""
    if start is None:
        begin = stored[-1][1] - AGAIN if stored else _midnight((stop - FIRST_TIME).date())
        return [(begin, stop)]
    begin = _midnight(start)
    if end is not None:
        return [(begin, stop)]
    spans, cursor = [], begin
    for first, last in stored:
        if first > cursor:
            spans.append((cursor, min(first, stop)))
        cursor = max(cursor, last + BAR)
    tail = max(begin, cursor - BAR - AGAIN) if stored else begin
    return [(low, high) for low, high in [*spans, (tail, stop)] if low < high] or [(begin, stop)]


def _pages(
    place: Venue, name: str, spans: Sequence[Span], stop: datetime, *, send: Callable[..., pl.DataFrame]
) -> Iterator[pl.DataFrame]:
    """Rows of every page that are not from before the cursor; the cursor never stands still.

    An empty page is no end: some exchanges answer with the bars of a window, and a window may have none.
    """
    size = page_size(place, name)
    first, cursor = spans[0][0], spans[0][0]
    with Work(name, total=(spans[-1][1] - first) // BAR) as work:
        for low, high in spans:
            cursor = max(cursor, low)
            while cursor < high:
                work.at((cursor - first) // BAR)
                page = send(name, partial(read_page, place, name, cursor, size=size))
                if page.is_empty():
                    cursor += size * BAR
                    continue
                fresh = page.filter(pl.col("ts").is_null() | (pl.col("ts") >= cursor) & (pl.col("ts") < stop))
                newest = fresh.get_column("ts").max()
                if not isinstance(newest, datetime):
                    break  # all of it was there before, or lies after the end: nothing more comes
                yield fresh
                cursor = newest + BAR


def _send(what: str, one: Callable[[], Answer], *, patience: Patience) -> Answer:
    """The answer to one request, asked for again as long as there is patience left.

    Raises
    ------
    RefusedError
        With the reason, when it is used up.
    """
    faults = list(FAULT_WAITS_S)
    while True:
        spent = patience.used_up()
        if spent is not None:
            raise RefusedError(spent)
        try:
            answer = one()
        except BusyError as error:
            wait = patience.next_wait(error.after_s)
            if wait is None:
                asked = f"; it asks to wait {error.after_s:,.0f} s" if error.after_s else ""
                raise RefusedError(Failure("rate-limited", f"{patience.busy}{asked}")) from error
            pause = lengthened(wait)
            log.info("rate limit of %s at %s: waiting %.0f s", patience.server, what, pause)
        except FaultError as error:
            if not faults:
                patience.away_in_a_row = patience.away_in_a_row + 1 if error.away else 0
                lead = "could not be reached" if error.away else "gave an answer that could not be used"
                raise RefusedError(Failure("failed", f"{patience.server} {lead}: {error}")) from error
            pause = lengthened(faults.pop(0))
        else:
            patience.answered()
            patience.left_s = BUSY_TOTAL_S  # years of history may meet the limit now and then
            return answer
        rest(pause)


def _outcome(
    name: str, exchange: str, span: Span, got: Span | None, failure: Failure | None
) -> tuple[Failure | None, str | None]:
    """What is left to say of a market: asked for from `span[0]` until `span[1]`, first and last bar `got`."""
    begin, stop = span
    if failure is not None:
        upto = f"; taken up to {_text(got[1])}, run it again to go on" if got else ""
        return Failure(failure.status, f"{failure.message}{upto}"), None
    if got is None and begin + BAR > stop:
        return Failure("unchanged", "all finished bars of the days asked for are stored"), None
    if got is None:
        return Failure("failed", f"{exchange} knows {name}, but gave not a single bar from {_text(begin)} on"), None
    if got[0] - begin >= LATE:
        return None, f"{name}: asked from {_text(begin)}, {exchange} gives it from {_text(got[0])} on only"
    return None, None


def _text(stamp: datetime) -> str:
    return f"{stamp:%Y-%m-%d %H:%MZ}"


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
