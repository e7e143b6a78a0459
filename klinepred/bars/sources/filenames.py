"""In: the name of a file of bars. Out: the symbol it is about, or an error when the name does not say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from klinepred.errors import SourceError

# Words that are no symbol: written small they may be anything, written in capitals only these venues count as such.
WORDS: Final = """
    um cm spot futures usdm coinm yahoo yfinance alpaca polygon massive databento stooq histdata dukascopy firstrate mt4
    mt5 tradingview freqtrade backtrader hikyuu baostock akshare kibot ashare bar bars candle candles kline klines ohlc
    ohlcv data history hist export full adjusted unadjusted splitadjusted regular extended
"""
VENUES: Final = "binance bybit okx kraken coinbase bitstamp bitfinex nasdaq nyse bats amex oanda fx_idc"
INTERVAL: Final = re.compile(r"(\d+(s|sec|m|min|mins|minute|minutes|h|hour|d|day)|[MmHhDd]\d{1,2}|\d{1,2})", re.ASCII)
DAY: Final = re.compile(r"(19|20)\d{2}((0[1-9]|1[0-2])([0-3]\d)?)?")
PAIR: Final = re.compile(r"([A-Z0-9]{2,10})_([A-Z]{3,5})(_[A-Z]{3,5})?-\d+[mhd](-\w+)?")


def symbol_of_file(path: Path) -> str:
    """The symbol in a file name such as `AAPL_5m.csv`, `SOLUSDT-5m-2025-10.csv`, `binance_um_SOLUSDT-5m.csv`.

    Interval, dates and names of vendors are taken off; of what is left, the part in capitals or digits counts, else
    the first. `ETH_BTC-5m` (freqtrade) is the pair `ETH/BTC`; a dash between capitals stays (`BTC-USD`, `BRK-B`).

    Raises
    ------
    SourceError
        Nothing is left, or several parts could be the symbol.
    """
    stem = path.name.split(".")[0] if path.name.count(".") == 1 else re.sub(r"\.[A-Za-z0-9]+$", "", path.name)
    parts = [part for part in re.split(r"[_,\s]+", stem) if part]
    while parts and _is_word(parts[0]):
        parts.pop(0)
    pair = PAIR.fullmatch("_".join(parts))
    if pair is not None:
        return f"{pair[1]}/{pair[2]}" + (f":{pair[3][1:]}" if pair[3] else "")
    left = [word for part in parts if (word := _strip(part)) and not _is_word(word)]
    capitals = [word for word in left if re.search(r"[A-Z0-9]", word) and word == word.upper()]
    choice = list(dict.fromkeys(capitals or left[:1]))
    if len(choice) == 1:
        return choice[0]
    raise SourceError(
        f"{path}: no symbol column, and the file name does not say one symbol",
        expected="a symbol column, or a file name such as AAPL_5m.csv",
        got=f"{path.name}" + (f", which could be {' or '.join(choice)}" if choice else ""),
        do="name the symbol with --symbols",
    )


def _strip(part: str) -> str:
    """`part` without interval and dates at its end: `SOLUSDT-5m-2025-10` to `SOLUSDT`, `2026-11-27` to nothing."""
    words = part.split("-")
    while words and (INTERVAL.fullmatch(words[-1]) or DAY.fullmatch(words[-1])):
        words.pop()
    return "-".join(words)


def _is_word(part: str) -> bool:
    return part in WORDS.split() or part.lower() in VENUES.split()
