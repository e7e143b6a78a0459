"""In: an exchange, a market, a moment. Out: one page of its 5-minute bars through ccxt, or one of three errors."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import polars as pl

from klinepred.bars.delivery import Failure
from klinepred.bars.sources.faults import MALFORMED, BusyError, FaultError, RefusedError
from klinepred.errors import SourceError, UsageError
from klinepred.schema import BAR_SCHEMA, TS, VALUES

TIMEOUT_MS: Final = 20_000
INTERVAL: Final = "5m"
PAGE: Final = 100
"""Bars asked for at once, where ccxt does not know how many the exchange gives: so few every exchange gives."""
KEY: Final = re.compile(r"[^A-Za-z0-9]")
FAR_MS: Final = 10**14
"""Stamps beyond this (the year 5138) are no milliseconds."""


@dataclass(frozen=True)
class Venue:
    """An exchange that ccxt talks to: its `name`, the ccxt object, provenance in words."""

    name: str
    client: Any
    source: str


@contextmanager
def venue(name: str) -> Iterator[Venue]:
    """Open the exchange `name`; its rate limit is kept by ccxt, proxies are those of the environment.

    Raises
    ------
    SourceError
        ccxt is not installed, or the exchange gives no 5-minute bars.
    UsageError
        ccxt knows no exchange of this name.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ccxt
    except ModuleNotFoundError as error:
        raise SourceError(
            "ingest from an exchange",
            expected="the package ccxt, which talks to the exchanges",
            got=f"no module {error.name}",
            do='pip install "klinepred[exchange]"',
        ) from error
    if name not in ccxt.exchanges:
        near = difflib.get_close_matches(name.lower(), ccxt.exchanges, n=3)
        raise UsageError(
            f"exchange {name!r}",
            expected=f"one of the {len(ccxt.exchanges)} that ccxt {ccxt.__version__} knows, in small letters",
            got=f"{name!r}, which it does not know",
            do=f"use --exchange with {' or '.join(near) or 'binance, kraken, coinbase, …'}",
        )
    client = _unfiltered(
        getattr(ccxt, name)({"enableRateLimit": True, "timeout": TIMEOUT_MS, "requests_trust_env": True})
    )
    try:
        if client.has.get("fetchOHLCV") is not True or INTERVAL not in (client.timeframes or {}):
            spans = ", ".join(client.timeframes or {}) or "none"
            raise SourceError(
                f"exchange {name}",
                expected="bars of five minutes",
                got=f"bars of these lengths: {spans}",
                do="use another exchange, or files of its trades made into bars",
            )
        yield Venue(name, client, f"exchange {name} (ccxt {ccxt.__version__})")
    finally:
        client.close()


def _unfiltered(client: Any) -> Any:
    """The client, made to show every row of a page: ccxt drops those without a stamp and those of before, silently."""
    inner = client.parse_ohlcvs

    def show(rows: Any, market: Any = None, timeframe: str = INTERVAL, *cut: Any, **more: Any) -> Any:  # noqa: ARG001
        if isinstance(rows, str | bytes):
            raise TypeError(f"text: {rows[:80]!r}")
        return inner(rows, market, timeframe)

    client.parse_ohlcvs = show
    return client


def load_markets(place: Venue) -> None:
    """Ask the exchange for its markets, once.

    Raises
    ------
    BusyError, FaultError, RefusedError
    """
    with _told(place):
        place.client.load_markets()


def find_market(place: Venue, symbol: str) -> str | Failure:
    """The name that ccxt gives the market which `symbol` means; only case may differ. The markets are loaded."""
    names = [str(name) for name in place.client.markets]
    if symbol in names:
        return symbol
    alike = [name for name in names if name.upper() == symbol.upper()]
    if len(alike) == 1:
        return alike[0]
    plain = KEY.sub("", symbol).upper()
    near = [name for name in names if KEY.sub("", name.partition(":")[0]).upper() == plain][:3]
    near = near or difflib.get_close_matches(symbol.upper(), names, n=3)
    text = f"{place.name} has no market {symbol[:60]!r}"
    return Failure("unknown-symbol", f"{text}; near: {', '.join(near)}" if near else text)


def page_size(place: Venue, symbol: str) -> int:
    """Bars that the exchange gives at once."""
    size = place.client.feature_value(symbol, "fetchOHLCV", "limit")
    return int(size) if size else PAGE


def read_page(place: Venue, symbol: str, since: datetime, *, size: int) -> pl.DataFrame:
    """One request for bars from `since` (aware) on.

    Returns
    -------
    polars.DataFrame
        `BAR_SCHEMA`, as the exchange gave it, whatever range it lies in; null where a value could not be read.

    Raises
    ------
    BusyError, FaultError, RefusedError
        Everything that can go wrong is one of these.
    """
    with _told(place):
        rows = place.client.fetch_ohlcv(symbol, INTERVAL, int(since.timestamp() * 1000), size)
        frame = pl.DataFrame(
            rows,
            schema={"ms": pl.Float64, **dict.fromkeys(VALUES, pl.Float64)},
            orient="row",
            strict=False,
            infer_schema_length=None,
        )
        ms = pl.when(pl.col("ms").is_between(0, FAR_MS)).then(pl.col("ms")).cast(pl.Int64)
        ts = pl.from_epoch(ms, "ms").dt.replace_time_zone("UTC").cast(TS)
        values = (pl.col(name).fill_nan(None) for name in VALUES)
        frame = frame.select(pl.lit(symbol, pl.String).alias("symbol"), ts.alias("ts"), *values)
        stamps = frame.get_column("ts")
        if stamps.null_count() and not (stamps >= since).any():
            raise FaultError(f"not in the form of bars: {str(rows[0])[:80]}")
        return frame.select(*BAR_SCHEMA)


@contextmanager
def _told(place: Venue) -> Iterator[None]:
    """Errors of ccxt as ours."""
    import ccxt

    try:
        yield
    except (ccxt.RateLimitExceeded, ccxt.DDoSProtection) as error:
        raise BusyError(_reason(error), after_s=_retry_after(place.client)) from error
    except ccxt.BadSymbol as error:
        raise RefusedError(Failure("unknown-symbol", _reason(error))) from error
    except (ccxt.AuthenticationError, ccxt.OperationRejected, ccxt.NotSupported) as error:
        raise RefusedError(Failure("failed", f"{place.name} does not serve this: {_reason(error)}")) from error
    except ccxt.NetworkError as error:
        raise FaultError(_reason(error), away=True) from error
    except ccxt.BaseError as error:
        raise FaultError(_reason(error)) from error
    except (*MALFORMED, ValueError) as error:
        raise FaultError(f"not in the form of bars ({_reason(error)})") from error


def _retry_after(client: Any) -> float:
    """Seconds that the last answer said to wait; 0 = it did not say, or in another form."""
    headers = getattr(client, "last_response_headers", None) or {}
    try:
        return max(0.0, float(headers.get("Retry-After") or 0.0))
    except ValueError:
        return 0.0


def _reason(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
