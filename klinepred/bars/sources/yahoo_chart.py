"""In: a symbol, a range. Out: one answer of Yahoo's chart through yfinance as bars, or one of three errors."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from klinepred.bars.delivery import SPLIT_SCHEMA, Failure
from klinepred.bars.sources.faults import MALFORMED, BusyError, FaultError, RefusedError
from klinepred.calendar import Clock
from klinepred.schema import BAR_SCHEMA, TS

TIMEOUT_S: Final = 20.0
"""For one request; yfinance may make a few more for Yahoo's cookie, each with its own limit of 30 seconds."""
NAME: Final = re.compile(r"[A-Za-z0-9.^=&-]{1,32}")
"""What Yahoo's symbols are made of. The symbol becomes part of an address, unescaped: nothing else may get there."""
INTERVAL: Final = "5m"
FAR: Final = timedelta(days=7)
"""Rows that lie further than this from the range asked for show that the stamps of an answer are not to be trusted."""
ISIN: Final = re.compile(r"[A-Z]{2}[A-Z0-9]{9}[0-9]")
MINOR: Final = {"GBp": "pence", "GBX": "pence", "ZAc": "cents", "ILA": "agorot"}
"""Yahoo's codes for quotes in a hundredth of the currency."""


@dataclass(frozen=True)
class Chart:
    """Bars of one symbol as Yahoo gave them.

    Attributes
    ----------
    symbol
        As Yahoo spells it.
    frame
        `BAR_SCHEMA`; what was missing in the answer is null.
    splits
        `SPLIT_SCHEMA`, as `Delivery.splits` wants them.
    remarks
        Lines for the user.
    """

    symbol: str
    frame: pl.DataFrame
    splits: pl.DataFrame
    remarks: tuple[str, ...] = ()


class _Line:
    """yfinance's way to Yahoo, which asks afresh each time and remembers the answer.

    yfinance keeps answers about the past, which would hide revisions and repeat a broken answer for ever; and of the
    answer it does not show which volumes were missing: it makes them 0.
    """

    def __init__(self, data: Any) -> None:
        self._data = data
        self.answer: Any = None

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """One request."""
        self.answer = self._data.get(*args, **kwargs)
        return self.answer

    cache_get = get

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)


@contextmanager
def client() -> Iterator[Any]:
    """The yfinance module, set to raise instead of logging, and silent; its settings are as before afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import yfinance as yf
        from yfinance.config import YfConfig
    logger = logging.getLogger("yfinance")
    level, hidden = logger.level, YfConfig.debug.hide_exceptions
    logger.setLevel(logging.CRITICAL + 1)
    YfConfig.debug.hide_exceptions = False
    try:
        yield yf
    finally:
        logger.setLevel(level)
        YfConfig.debug.hide_exceptions = hidden


def ask(yf: Any, symbol: str, *, clock: Clock, begin: datetime, stop: datetime) -> Chart:
    """One request for `begin <= ts < stop` (aware) through yfinance, which `client` gave; may run in several threads.

    pandas warns inside yfinance: that is the caller's to silence, since a filter of warnings holds for all threads.

    Raises
    ------
    BusyError, FaultError, RefusedError
        Everything that can go wrong is one of these.
    """
    from peewee import PeeweeException  # yfinance keeps its cookie in a database of this

    _check_name(symbol)
    try:
        ticker = yf.Ticker(symbol)
        line = ticker._data = _Line(ticker._data)
        ticker._tz = clock.zone  # spares a request per symbol: begin and stop carry their zone, so it is not used
        try:
            table = ticker.history(
                interval=INTERVAL,
                start=begin,
                end=stop,
                prepost=clock.hours == "extended",
                auto_adjust=False,
                actions=True,
                keepna=True,
                timeout=TIMEOUT_S,
            )
        except yf.exceptions.YFPricesMissingError as error:
            raise _missing(error, symbol, named=_named(ticker), begin=begin, stop=stop) from error
        named, currency = _named(ticker), str(ticker.history_metadata.get("currency") or "")
        spacing = str(ticker.history_metadata.get("dataGranularity") or INTERVAL)
        if named.upper() != symbol.upper():
            raise FaultError(f"it was of {named or 'no symbol'} when asked for {symbol}")
        if spacing != INTERVAL:
            raise FaultError(f"it was of {spacing} bars when asked for {INTERVAL}")
        if table.empty:
            raise _empty(symbol, begin, stop)
        frame, splits = _frame(table, named), _splits(table, named)
        _check_range(frame, begin, stop)
        raw = line.answer.json()["chart"]["result"][0]
        frame, remarks = _hollow(frame, raw)
        remarks = (*remarks, *_twice(raw, named))
        if currency in MINOR:
            unit = f"{named} is quoted in {currency} ({MINOR[currency]}): prices are stored as quoted"
            remarks = (unit, *remarks)
        return Chart(named, frame, splits, remarks)
    except yf.exceptions.YFRateLimitError as error:
        raise BusyError from error
    except (yf.exceptions.YFException, OSError, ValueError) as error:
        if "404" in (page := str(getattr(error, "doc", ""))) and "not found" in page.lower():  # no chart but a page
            raise RefusedError(Failure("unknown-symbol", f"Yahoo has no page of {symbol} (HTTP 404)")) from error
        away = "CURRENTLY DOWN" in str(error) or (isinstance(error, OSError) and not isinstance(error, ValueError))
        raise FaultError(_reason(error), away=away) from error
    except PeeweeException as error:
        raise FaultError(f"yfinance's cache on disk: {_reason(error)}", away=True) from error
    except MALFORMED as error:
        if error.args == ("timestamp",):  # a known symbol, no bar in the range
            raise _empty(symbol, begin, stop) from error
        raise FaultError(f"not in the form of a chart ({_reason(error)})") from error


def _check_name(symbol: str) -> None:
    if not NAME.fullmatch(symbol):
        text = f"Yahoo has no symbol {symbol[:40]!r}: its names are letters, digits and . - ^ = &"
        if re.fullmatch(r"[A-Za-z0-9]+/[A-Za-z0-9]+", symbol):
            text += f", such as {symbol.replace('/', '-')} for a currency pair"
        raise RefusedError(Failure("unknown-symbol", text))
    if ISIN.fullmatch(symbol.upper()):
        raise RefusedError(Failure("unknown-symbol", f"{symbol} is an ISIN: pass the symbol Yahoo lists it under"))


def _check_range(frame: pl.DataFrame, begin: datetime, stop: datetime) -> None:
    low, high = frame.select(low=pl.col("ts").min(), high=pl.col("ts").max()).row(0)
    if low is not None and (low < begin - FAR or high > stop + FAR):
        raise FaultError(
            f"it was of {low:%Y-%m-%d} to {high:%Y-%m-%d} when asked for {begin:%Y-%m-%d} to {stop:%Y-%m-%d}"
        )


def _named(ticker: Any) -> str:
    """The symbol that the answer says it is of; "" = none."""
    return str(ticker.history_metadata.get("symbol") or "")


def _missing(error: Any, symbol: str, *, named: str, begin: datetime, stop: datetime) -> FaultError | RefusedError:
    """What it means that yfinance found no prices: a symbol unknown to Yahoo, a range it does not serve, or a fault."""
    reason = str(error.yahoo_reason or "")
    said = reason.lower()
    if "must be within the last" in said or "not available for starttime" in said:
        return RefusedError(
            Failure("failed", f"Yahoo keeps 5-minute bars of the last 60 calendar days only; it said: {reason}")
        )
    if "data doesn't exist" in said or (not reason and named.upper() == symbol.upper()):
        return _empty(symbol, begin, stop)
    if "no data found" in said or "not found" in said:
        text = f"Yahoo knows no symbol {symbol}, or no longer"
        if re.fullmatch(r"[A-Za-z]+\.[A-Za-z]", symbol):
            text += f"; it writes share classes with a dash: {symbol.replace('.', '-')}"
        return RefusedError(Failure("unknown-symbol", text))
    return FaultError(f"it said: {reason}" if reason else "not in the form of a chart")


def _empty(symbol: str, begin: datetime, stop: datetime) -> RefusedError:
    until = stop.astimezone(begin.tzinfo) - timedelta(microseconds=1)
    text = f"Yahoo knows {symbol}, but gave not a single bar from {begin:%Y-%m-%d} to {until:%Y-%m-%d}"
    return RefusedError(Failure("failed", text), empty=True)


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


def _splits(table: Any, symbol: str) -> pl.DataFrame:
    """Splits in yfinance's table: it moves each to the first row of its day."""
    ratios = table["Stock Splits"].to_numpy(dtype="float64")
    stamps = table.index.tz_convert("UTC").tz_localize(None).to_numpy().astype("datetime64[us]")
    frame = pl.DataFrame({"ts": stamps, "ratio": ratios}).with_columns(
        pl.col("ts").dt.replace_time_zone("UTC").cast(TS), symbol=pl.lit(symbol, dtype=pl.String)
    )
    good = pl.col("ratio").is_finite() & (pl.col("ratio") > 0.0) & (pl.col("ratio") != 1.0)
    return frame.filter(good).select(*SPLIT_SCHEMA)


def _hollow(frame: pl.DataFrame, raw: Any) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """`frame` with null where Yahoo's answer had prices and no volume; instruments without any volume keep their 0."""
    volumes = raw["indicators"]["quote"][0]["volume"]
    rows = pl.DataFrame({"second": raw["timestamp"], "told": [volume is not None for volume in volumes]})
    told = rows.group_by(ts=pl.from_epoch("second", "s").dt.replace_time_zone("UTC").cast(TS)).agg(pl.col("told").any())
    priced = frame.filter(pl.col("close").is_not_null())
    bare = priced.join(told.filter(~pl.col("told")), on="ts", how="semi").get_column("ts")
    if bare.is_empty():
        return frame, ()
    name = frame.get_column("symbol")[0]
    if bare.len() == priced.height:
        return frame, (f"Yahoo gives no volume of {name} at all: stored as 0",)
    return frame.with_columns(volume=pl.when(~pl.col("ts").is_in(bare.implode())).then("volume")), ()


def _twice(raw: Any, symbol: str) -> tuple[str, ...]:
    """A line where Yahoo gave bars twice with different values: yfinance keeps the first of them and says nothing."""
    rows = pl.DataFrame({"second": raw["timestamp"], **raw["indicators"]["quote"][0]}, strict=False).unique()
    count = rows.height - rows.get_column("second").n_unique()
    if not count:
        return ()
    return (f"Yahoo gave {symbol} rows of one bar that differ, {count:,} of them: the first of each bar was taken",)


def _reason(error: Exception) -> str:
    if isinstance(error, ValueError) and type(error).__name__ == "JSONDecodeError":  # of json, or of what requests uses
        return "an answer that is no JSON: an error page of the server, or cut off"
    lines = str(error).partition(" See https://curl.se")[0].splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
