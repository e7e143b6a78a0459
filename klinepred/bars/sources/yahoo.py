"""In: symbols, a range of days. Out: their 5-minute bars from Yahoo through yfinance, one `Delivery` per symbol."""

from __future__ import annotations

import logging
import random
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

import polars as pl

from klinepred.bars.delivery import Delivery, Failure
from klinepred.calendar import Clock, zone_of
from klinepred.schema import BAR_SCHEMA, TS

log = logging.getLogger("klinepred.bars")

WALL: Final = timedelta(days=60)
"""Yahoo serves 5-minute bars of the last 60 calendar days only."""
TIMEOUT_S: Final = 20.0
BUSY_WAITS_S: Final = (2.0, 4.0, 8.0, 16.0, 30.0)
"""Waits after a rate limit, each lengthened by up to a half at random; for all symbols of one ingest together, so that
a ban is not prolonged by trying on and on: at most 90 seconds."""
FAULT_WAITS_S: Final = (1.0, 3.0)
"""Waits after a broken answer or a time-out, per symbol."""
GIVE_UP_AFTER: Final = 3
"""Symbols in a row that are refused once the waits are used up; the rest is not asked for any more."""
BUSY: Final = "rate limit of Yahoo (HTTP 429): nothing was taken, what is stored is as it was; try again in an hour"


class _BusyError(Exception):
    """Yahoo said: too many requests."""


class _FaultError(Exception):
    """An answer that may be better at the next try."""


class _RefusedError(Exception):
    """An answer that will not change; carries the failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass
class _Patience:
    """Waits for rate limits that are left to this ingest."""

    waits: list[float]
    refused_in_a_row: int = 0


def fetch(
    symbols: Sequence[str], *, clock: Clock, start: date | None, end: date | None, now: datetime
) -> Iterator[Delivery]:
    """Ask Yahoo for one symbol after the other.

    Prices are not adjusted for splits or dividends after the fact, and stay in the currency unit Yahoo quotes (pence
    for London). Rows without prices are passed on as nulls; the bar that is still open is passed on too: cleaning
    holds it back.

    Parameters
    ----------
    start, end
        Days in the calendar's zone, both included. None: the 60 calendar days that Yahoo keeps, up to now. An earlier
        start is moved to the first whole day Yahoo keeps, and said.
    now
        Where the 60 days end.

    Yields
    ------
    Delivery
        Of one symbol, with its bars or with a `Failure`: rate-limited, unknown-symbol or failed.
    """
    zone = zone_of(clock.zone)
    first = (now - WALL).astimezone(zone).date() + timedelta(days=1)
    source = f"yahoo (yfinance {_version()})"
    remarks: tuple[str, ...] = ()
    if end is not None and end < first:
        text = (
            f"Yahoo keeps 5-minute bars of the last 60 calendar days only, today from {first}:"
            f" nothing of {start or 'the past'} to {end} can be had there"
        )
        for symbol in symbols:
            yield _nothing(symbol, Failure("failed", text), source)
        return
    if start is not None and start < first:
        remarks = (
            f"Yahoo keeps 5-minute bars of the last 60 calendar days only: asked from {start}, taken from {first};"
            " what is stored from before stays",
        )
    begin = datetime.combine(max(start or first, first), datetime.min.time(), zone)
    stop = None if end is None else datetime.combine(end + timedelta(days=1), datetime.min.time(), zone)
    patience = _Patience(list(BUSY_WAITS_S))
    with _yfinance() as yf:
        for symbol in symbols:
            if patience.refused_in_a_row >= GIVE_UP_AFTER:
                yield _nothing(symbol, Failure("rate-limited", BUSY), source, remarks)
                continue
            try:
                frame, notes = _patient(yf, symbol, clock=clock, begin=begin, stop=stop, patience=patience)
            except _RefusedError as refusal:
                yield _nothing(symbol, refusal.failure, source, remarks)
                continue
            yield Delivery(frame=frame, source=source, remarks=(*remarks, *notes))


def _patient(
    yf: Any, symbol: str, *, clock: Clock, begin: datetime, stop: datetime | None, patience: _Patience
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """One symbol, with the waits that are left."""
    faults = list(FAULT_WAITS_S)
    while True:
        try:
            answer = _ask(yf, symbol, clock=clock, begin=begin, stop=stop)
        except _BusyError:
            if not patience.waits:
                patience.refused_in_a_row += 1
                raise _RefusedError(Failure("rate-limited", BUSY)) from None
            pause = patience.waits.pop(0) * (1.0 + random.random() / 2.0)  # noqa: S311  # jitter, not a secret
            log.info("Yahoo's rate limit at %s: waiting %.0f s", symbol, pause)
            _sleep(pause)
        except _FaultError as fault:
            if not faults:
                raise _RefusedError(Failure("failed", f"Yahoo's answer could not be used: {fault}")) from fault
            _sleep(faults.pop(0))
        else:
            patience.refused_in_a_row = 0
            return answer


def _ask(
    yf: Any, symbol: str, *, clock: Clock, begin: datetime, stop: datetime | None
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """One request through yfinance; every way it can go wrong becomes one of the three exceptions above."""
    ticker = yf.Ticker(symbol)
    ticker._tz = clock.zone  # spares a request per symbol: begin and stop carry their zone, so it is not used
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pandas, raised inside yfinance
            table = ticker.history(
                interval="5m",
                start=begin,
                end=stop,
                prepost=clock.hours == "extended",
                auto_adjust=False,
                actions=False,
                keepna=True,
                timeout=TIMEOUT_S,
            )
            meta = ticker.history_metadata
    except yf.exceptions.YFRateLimitError as error:
        raise _BusyError from error
    except yf.exceptions.YFPricesMissingError as error:
        raise _RefusedError(_missing(error, symbol, begin, stop)) from error
    except yf.exceptions.YFTickerMissingError as error:
        raise _RefusedError(Failure("unknown-symbol", f"Yahoo knows no {symbol}")) from error
    except (yf.exceptions.YFException, OSError, ValueError) as error:
        raise _FaultError(_reason(error)) from error
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        if error.args == ("timestamp",):  # a known symbol, no bar in the range
            raise _RefusedError(_empty(symbol, begin, stop)) from error
        raise _FaultError(f"not in the form of a chart ({_reason(error)})") from error
    own = str(meta.get("symbol", symbol)) if meta else symbol
    if own.upper() != symbol.upper():
        raise _RefusedError(Failure("failed", f"Yahoo answered with bars of {own} when asked for {symbol}"))
    if table.empty:
        raise _RefusedError(_empty(symbol, begin, stop))
    currency = str(meta.get("currency") or "") if meta else ""
    notes = (f"{symbol} is quoted in {currency}, a hundredth of the currency",) if currency in _MINOR else ()
    return _frame(table, symbol), notes


_MINOR: Final = ("GBp", "GBX", "ZAc", "ILA")


def _missing(error: Any, symbol: str, begin: datetime, stop: datetime | None) -> Failure:
    """yfinance found no prices: for a symbol unknown to Yahoo, a range it does not serve, or no reason given."""
    reason = str(error.yahoo_reason or "")
    if "within the last 60 days" in reason or "not available for starttime" in reason.lower():
        return Failure("failed", f"Yahoo keeps 5-minute bars of the last 60 calendar days only; it said: {reason}")
    if "no data found" in reason.lower() or "not found" in reason.lower():
        return Failure("unknown-symbol", f"Yahoo knows no {symbol}; it said: {reason}")
    return (
        Failure("failed", f"Yahoo gave no bars of {symbol}; it said: {reason}")
        if reason
        else _empty(symbol, begin, stop)
    )


def _empty(symbol: str, begin: datetime, stop: datetime | None) -> Failure:
    until = "now" if stop is None else f"{stop - timedelta(days=1):%Y-%m-%d}"
    return Failure("failed", f"Yahoo answered without a single bar of {symbol} for {begin:%Y-%m-%d} to {until}")


def _frame(table: Any, symbol: str) -> pl.DataFrame:
    """yfinance's table, columns by name, as `BAR_SCHEMA`; NaN becomes null."""
    stamps = table.index.tz_convert("UTC").tz_localize(None).to_numpy().astype("datetime64[us]")
    columns = {
        name: table[name.capitalize()].to_numpy(dtype="float64") for name in BAR_SCHEMA if name not in ("symbol", "ts")
    }
    frame = pl.DataFrame({"ts": stamps, **columns}).with_columns(
        pl.col("ts").dt.replace_time_zone("UTC").cast(TS), symbol=pl.lit(symbol, dtype=pl.String)
    )
    return frame.select(pl.col(name).cast(dtype) for name, dtype in BAR_SCHEMA.items()).fill_nan(None)


def _nothing(symbol: str, failure: Failure, source: str, remarks: tuple[str, ...] = ()) -> Delivery:
    return Delivery(frame=pl.DataFrame(schema=BAR_SCHEMA), source=source, failures={symbol: failure}, remarks=remarks)


def _reason(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def _version() -> str:
    from importlib.metadata import version

    return version("yfinance")


@contextmanager
def _yfinance() -> Iterator[Any]:
    """The client, set to raise instead of logging, and silent; its settings are as before afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import yfinance as yf
        from yfinance.config import YfConfig
        from yfinance.data import YfData
    logger = logging.getLogger("yfinance")
    level, hidden = logger.level, YfConfig.debug.hide_exceptions
    logger.setLevel(logging.CRITICAL + 1)
    YfConfig.debug.hide_exceptions = False
    YfData.cache_get.cache_clear()  # answers about the past are kept in the process: revisions would not be seen
    try:
        yield yf
    finally:
        logger.setLevel(level)
        YfConfig.debug.hide_exceptions = hidden
