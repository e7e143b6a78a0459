"""In: header, first rows and name of a file. Out: the vendor whose form that is, with its zone and stamp convention."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from klinepred.bars.sources.columns import plain
from klinepred.errors import SourceError, UsageError

OHLC: Final = "open high low close "
NUM: Final = r"-?[\d.]+"
EPOCH: Final = r"(\d{10}|\d{13}|\d{16})"
FIRSTRATE: Final = r"_full_\d+min|_\d+min_sample|(?i:firstrate)"
LEAN: Final = re.compile(r"(\d{8})_([^_/\\]+)_(?:minute|second)_trade(_[^.]*)?\.")
"""Day, ticker and, of a future or an option, its expiry."""


@dataclass(frozen=True)
class Look:
    """What of a file can tell its vendor: its name, the header as written (empty = none), its first rows as text."""

    file: str
    names: tuple[str, ...]
    first: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Sign:
    """A form a vendor's files have; all that is given must hold.

    Attributes
    ----------
    columns
        Names, as `plain` leaves them, that are all in the header; `only`: and no others.
    header, row
        Patterns of the header as written, and of every first row of a file without one; fields joined by `|`.
    file
        Pattern found in the file name.
    telling
        Nobody else writes this form, so it is recognised unasked; else it only has to hold for `--vendor NAME`.
    """

    columns: frozenset[str] = frozenset()
    only: bool = False
    header: str = ""
    row: str = ""
    file: str = ""
    telling: bool = True

    def holds(self, look: Look) -> bool:
        """Whether the file has this form."""
        plains = {plain(name) for name in look.names}
        if self.columns and not (self.columns <= plains and (not self.only or self.columns == plains)):
            return False
        if self.header and not re.fullmatch(self.header, "|".join(look.names)):
            return False
        if self.row and (look.names or not look.first):
            return False
        if self.row and not all(re.fullmatch(self.row, "|".join(part.strip() for part in row)) for row in look.first):
            return False
        return not self.file or re.search(self.file, look.file) is not None


@dataclass(frozen=True)
class Vendor:
    """A vendor's conventions.

    Attributes
    ----------
    zone
        Zone of stamps without one; None = the files do not tell, and the vendor has no fixed one.
    stamp
        Whether stamps are opens or ends of bars; None = not known.
    note
        What else is peculiar, in words for the user.
    """

    name: str
    title: str
    signs: tuple[Sign, ...]
    zone: str | None = None
    stamp: Literal["open", "close"] | None = "open"
    note: str = ""


def _sign(columns: str = "", **more: object) -> Sign:
    return Sign(columns=frozenset(columns.split()), **more)  # type: ignore[arg-type]


VENDORS: Final = (
    Vendor(
        "yahoo",
        "Yahoo (yfinance)",
        (
            Sign(header=r"Price\|.*Close.*"),
            _sign(OHLC + "volume", header=r"Datetime\|(.*\|)?(Adj )?Close(\|.*)?"),
            _sign("date " + OHLC + "volume", telling=False),
        ),
    ),
    Vendor(
        "binance",
        "Binance bulk data",
        (
            _sign("opentime closetime volume " + OHLC),
            Sign(row=rf"{EPOCH}(\|{NUM}){{5}}\|{EPOCH}(\|{NUM}){{5}}"),
        ),
        zone="UTC",
    ),
    Vendor(
        "polygon",
        "Polygon (Massive) flat files",
        (_sign("ticker windowstart transactions volume " + OHLC),),
        zone="UTC",
    ),
    Vendor(
        "databento",
        "Databento OHLCV",
        (_sign("tsevent publisherid instrumentid volume " + OHLC),),
        zone="UTC",
        note="prices may be fixed-point integers of 1e-9",
    ),
    Vendor("alpaca", "Alpaca", (_sign("timestamp tradecount vwap volume " + OHLC),), zone="UTC"),
    Vendor(
        "lean",
        "QuantConnect Lean",
        (Sign(row=rf"\d{{1,8}}(\|{NUM}){{5}}", file=LEAN.pattern),),
        note="day and symbol come from the file name, stamps are milliseconds since midnight there, "
        "prices of equities are 10,000 times too large",
    ),
    Vendor(
        "firstrate",
        "FirstRate Data",
        (
            Sign(row=rf"\d{{4}}-\d\d-\d\d \d\d:\d\d(:\d\d)?(\|{NUM}){{5}}", file=FIRSTRATE),
            Sign(row=rf"\d{{4}}-\d\d-\d\d \d\d:\d\d(:\d\d)?(\|{NUM}){{5}}", telling=False),
            _sign("timestamp volume " + OHLC, only=True, file=FIRSTRATE),
            _sign("timestamp volume " + OHLC, only=True, telling=False),
        ),
        zone="America/New_York",
    ),
    Vendor(
        "stooq",
        "Stooq",
        (_sign("ticker per date time vol openint " + OHLC),),
        zone="Europe/Warsaw",
        note="symbols are kept as Stooq writes them, such as AAPL.US",
    ),
    Vendor(
        "ninjatrader",
        "NinjaTrader exports",
        (
            Sign(row=rf"\d{{8}} \d{{6}}(\|{NUM}){{5}}", file=r"\.(Last|Bid|Ask)\.txt|(?i:ninjatrader)"),
            Sign(row=rf"\d{{8}} \d{{6}}(\|{NUM}){{5}}", telling=False),
        ),
        zone="UTC",
        stamp="close",
    ),
    Vendor(
        "histdata",
        "HistData",
        (
            Sign(row=rf"\d{{8}} \d{{6}}(\|{NUM}){{4}}\|0(\.0+)?"),
            Sign(row=rf"\d{{4}}\.\d\d\.\d\d\|\d\d:\d\d(\|{NUM}){{4}}\|0(\.0+)?", file=r"DAT_MT_"),
            Sign(row=rf"\d{{8}} \d{{6}}(\|{NUM}){{5}}", file=r"DAT_(ASCII|NT)_|(?i:histdata)"),
            Sign(row=rf"\d{{8}} \d{{6}}(\|{NUM}){{5}}|\d{{4}}\.\d\d\.\d\d\|\d\d:\d\d(\|{NUM}){{5}}", telling=False),
        ),
        zone="Etc/GMT+5",
        note="New York winter time all year; there is no volume, it is 0",
    ),
    Vendor(
        "mt4",
        "MetaTrader 4",
        (
            Sign(row=rf"\d{{4}}\.\d\d\.\d\d\|\d\d:\d\d(\|{NUM}){{5}}"),
            Sign(row=rf"\d{{4}}[.-]\d\d[.-]\d\d[ |]\d\d:\d\d(\|{NUM}){{5}}", file=r"(?i:mt4|metatrader)"),
            Sign(row=rf"\d{{4}}[.-]\d\d[.-]\d\d[ |]\d\d:\d\d(\|{NUM}){{5}}", telling=False),
        ),
        note="stamps are in the broker's time, which the file does not tell",
    ),
    Vendor(
        "mt5",
        "MetaTrader 5",
        (_sign("date time tickvol vol spread " + OHLC),),
        note="stamps are in the broker's time, which the file does not tell",
    ),
    Vendor("tradingview", "TradingView", (Sign(header=r"time\|open\|high\|low\|close(\|.*)?"),)),
    Vendor(
        "freqtrade",
        "freqtrade",
        (
            _sign("date volume " + OHLC, only=True, file=r"[A-Z0-9]+_[A-Z]+(_[A-Z]+)?-\d+[smhd](-\w+)?\.feather"),
            _sign("date volume " + OHLC, only=True, telling=False),
        ),
        zone="UTC",
    ),
    Vendor(
        "ib",
        "Interactive Brokers",
        (_sign("date average barcount volume " + OHLC), _sign("date wap count volume " + OHLC)),
        note="a volume of -1 (currencies) means none and becomes 0",
    ),
    Vendor(
        "alphavantage",
        "Alpha Vantage",
        (
            _sign("timestamp volume " + OHLC, only=True, file=r"(?i:alpha[_ -]?vantage)"),
            _sign("timestamp volume " + OHLC, only=True, telling=False),
        ),
        zone="America/New_York",
        stamp=None,
    ),
    Vendor(
        "baostock",
        "baostock",
        (_sign("date time code volume amount adjustflag " + OHLC),),
        zone="Asia/Shanghai",
        stamp="close",
    ),
    Vendor(
        "akshare", "akshare", (_sign("时间 开盘 收盘 最高 最低 成交量 成交额"),), zone="Asia/Shanghai", stamp="close"
    ),
    Vendor("tushare", "Tushare", (_sign("tscode tradetime vol " + OHLC),), zone="Asia/Shanghai", stamp="close"),
)
"""In the order they are tried. Where two could claim a file, the first one's sign is the narrower."""


def check_vendor(name: str) -> None:
    """UsageError unless `name` is auto or a vendor's."""
    names = [vendor.name for vendor in VENDORS]
    if name == "auto" or name in names:
        return
    near = difflib.get_close_matches(name.lower(), names, n=2, cutoff=0.5)
    raise UsageError(
        f"--vendor {name}",
        expected=f"auto, or one of {', '.join(names)}",
        got=repr(name),
        do=f"write --vendor {near[0]}" if near else "leave --vendor away: the form of a file is recognised from itself",
    )


def recognise(look: Look, *, vendor: str) -> Vendor | None:
    """The vendor of a file; None where nothing about it is one's alone.

    Parameters
    ----------
    vendor
        "auto", or the name of the one it is said to be.

    Raises
    ------
    SourceError
        The file does not have the form of the vendor it is said to be from.
    """
    if vendor == "auto":
        return next((one for one in VENDORS if any(sign.telling and sign.holds(look) for sign in one.signs)), None)
    said = next(one for one in VENDORS if one.name == vendor)
    if any(sign.holds(look) for sign in said.signs):
        return said
    own = recognise(look, vendor="auto")
    raise SourceError(
        f"{look.file}: --vendor {vendor}",
        expected=f"a file of {said.title}: {_form(said)}",
        got=_seen(look) + (f", as {own.title} writes them" if own else ""),
        do=f"pass --vendor {own.name if own else 'auto'}, or leave it away",
    )


def _form(vendor: Vendor) -> str:
    columns = next((sign.columns for sign in vendor.signs if sign.columns), None)
    if columns:
        return f"columns {', '.join(sorted(columns))}"
    if any(sign.header for sign in vendor.signs):
        return "a header that begins time, open, high, low, close"
    return "rows without a header, in its order" + (
        ", under its file name" if all(sign.file for sign in vendor.signs) else ""
    )


def _seen(look: Look) -> str:
    row: Sequence[str] = look.names or (look.first[0] if look.first else ())
    return ("columns " if look.names else "rows such as ") + ", ".join(row)[:120]
