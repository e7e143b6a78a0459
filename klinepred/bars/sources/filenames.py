"""In: the name of a file of bars. Out: the symbol it is about, or an error when the name does not say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from klinepred.errors import SourceError

# Words that are no symbol: written small they may be anything, written in capitals only these venues count as such.
WORDS: Final = """
    um cm spot futures usdm coinm yahoo yfinance alpaca polygon massive databento stooq histdata dukascopy firstrate
    mt4 mt5 tradingview freqtrade backtrader hikyuu baostock akshare kibot ashare binance bybit kraken coinbase bar
    bars candle candles kline klines ohlc ohlcv data history hist historical export exported full adjusted unadjusted
    splitadjusted adjsplit adjsplitdiv sample regular extended intraday minute minutes min sec daily trade trades
    quote quotes price prices market stock stocks crypto forex equity equities test tests file files out output input
    raw clean cleaned final copy new old tmp temp all my the and of for from excel csv txt parquet feather sheet table
    book import download downloads merged combined part chunk utc est local naive zone open close end ends start bom
    crlf utf utf8 comma tab header short long first last page list
"""
VENUES: Final = "binance bybit okx kraken coinbase bitstamp bitfinex nasdaq nyse bats amex oanda fx_idc"
INTERVAL: Final = re.compile(r"(\d+(s|sec|m|min|mins|minute|minutes|h|hour|d|day)|[MmHhDd]\d{1,2}|\d{1,2})", re.ASCII)
DAY: Final = re.compile(r"(19|20)\d{2}((0[1-9]|1[0-2])([0-3]\d(\d{4}(\d{2})?)?)?)?")
TIME: Final = re.compile(r"([01]\d|2[0-3])[0-5]\d([0-5]\d)?")
PAIR: Final = re.compile(r"([A-Z0-9]{2,10})_([A-Z]{3,5})(_[A-Z]{3,5})?-\d+[mhd](-\w+)?")
OF_VENDORS: Final = (
    re.compile(r"DAT_(?:ASCII|NT|MT|XLSX|MS)_([A-Z0-9]+)_.*"),  # HistData
    re.compile(r".+_([^_]+), \d+[A-Za-z]?(?:_[0-9a-f]+)?"),  # TradingView: venue, symbol, interval
    re.compile(r"([A-Z0-9]+ \d\d-\d\d)\.(?:Last|Bid|Ask)"),  # NinjaTrader: a future with its expiry
    re.compile(r"([A-Za-z0-9^.-]+)_full_\d+(?:min|hour|day)_.*"),  # FirstRate
)
LARGE: Final = re.compile(r"[^a-z]*[A-Z0-9][^a-z]*|.*[^\x00-\x7f].*")
"""Capitals or digits and no small letters; or a name in letters beyond ASCII."""
SMALL: Final = re.compile(
    r"[a-z]{1,5}|[a-z]{1,5}[.-][a-z]{1,3}|[a-z0-9]{2,6}(usd[tc]?|eur|gbp|jpy|chf|btc|eth)|\^[a-z]{2,6}|[a-z]{6}=x"
    r"|\d{4,6}\.[a-z]{2}|(sh|sz|bj)\.?\d{6}|[A-Z0-9]{1,6}\.[a-z]{1,3}"
)
"""How a symbol with small letters looks: short, with a suffix of its venue, a pair of currencies, a Chinese code."""


def symbol_of_file(path: Path) -> tuple[str, bool]:
    """The symbol in a file name such as `AAPL_5m.csv`, `SOLUSDT-5m-2025-10.csv`, `binance_um_SOLUSDT-5m.csv`.

    Interval, dates, names of vendors and other usual words are taken off; of what is left, the part in capitals or
    digits counts, else the only part if it looks like a symbol (`spy_5m.csv`, `aapl.us.txt`, `eurusd-m5.csv`).
    `ETH_BTC-5m` (freqtrade) is the pair `ETH/BTC`; a dash between capitals stays (`BTC-USD`, `BRK-B`).

    Returns
    -------
    tuple
        The symbol, and whether it looks like one: words that do not (`my_export.csv`) are taken whole as the symbol,
        which the caller must say aloud.

    Raises
    ------
    SourceError
        Nothing is left, or several parts could be the symbol.
    """
    stem = path.name.split(".")[0] if path.name.count(".") == 1 else re.sub(r"\.[A-Za-z0-9]+$", "", path.name)
    stem = re.sub(r" ?\(\d+\)$", "", stem)  # a second download of the same name
    own = next((found[1] for form in OF_VENDORS if (found := form.fullmatch(stem))), None)
    if own is not None:
        return own, True
    parts = [part for part in re.split(r"[_,\s]+", stem) if part]
    while parts and _is_word(parts[0]):
        parts.pop(0)
    pair = PAIR.fullmatch("_".join(parts))
    if pair is not None:
        return f"{pair[1]}/{pair[2]}" + (f":{pair[3][1:]}" if pair[3] else ""), True
    # six digits after a date are a time of day, elsewhere perhaps a Chinese code
    timed = [spot for spot in range(1, len(parts)) if DAY.fullmatch(parts[spot - 1]) and TIME.fullmatch(parts[spot])]
    parts = [part for spot, part in enumerate(parts) if spot not in timed]
    left = [word for part in parts if (word := _strip(part)) and not _is_word(word)]
    choice = list(dict.fromkeys(word for word in left if LARGE.fullmatch(word)))
    if not choice and len(left) == 1 and SMALL.fullmatch(left[0]):
        choice = left
    if len(choice) == 1:
        return choice[0], True
    if not choice and re.search(r"[^\W\d_]{3}", stem):  # more than an interval and dates
        return stem, False
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
