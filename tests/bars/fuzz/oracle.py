"""In: bars said to be good, a calendar, a report, folders. Out: complaints, by rules of its own."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import exchange_calendars as xc
import numpy as np
import polars as pl

from klinepred.bars.report import IngestReport

BAR_US: Final = 300_000_000
STORE: Final = re.compile(
    r"data(/(\.writer\.(lock|json)"
    r"|(bars|symbols|quarantine)(/(_delta_log(/[\d.a-z\-]+)?|part-[\da-f]{32}\.parquet"
    r"|month=\d{4}-\d\d(/part-[\da-f]{32}\.parquet)?))?))?"
)


@lru_cache(maxsize=16)
def open_stamps(calendar: str, hours: str) -> np.ndarray:
    """Every stamp at which a bar of `calendar` opens, microseconds since 1970, from `exchange_calendars` itself."""
    first, last = "1990-01-01", (datetime.now(UTC).date() + timedelta(days=3 * 366)).isoformat()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exchange = xc.get_calendar(calendar, start=first, end=last)
        except ValueError:  # its holidays are recorded for fewer years
            known = xc.get_calendar(calendar)
            low, high = known.bound_min(), known.bound_max()
            first = max(first, low.date().isoformat()) if low else first
            last = min(last, high.date().isoformat()) if high else last
            exchange = xc.get_calendar(calendar, start=first, end=last)
    table, zone = exchange.schedule, ZoneInfo(str(exchange.tz))
    opens, closes, pauses, resumes = (
        table[name].dt.tz_convert(None).to_numpy().astype("datetime64[s]").astype(np.int64)
        for name in ("open", "close", "break_start", "break_end")
    )
    broken = table["break_start"].notna().to_numpy()
    out: list[np.ndarray] = []
    for spot, day in enumerate(table.index):
        edges = [(opens[spot], closes[spot])]
        if broken[spot]:
            edges = [(opens[spot], pauses[spot]), (resumes[spot], closes[spot])]
        if hours == "extended":
            early = datetime.fromtimestamp(int(closes[spot]), zone).hour < 16
            start = datetime(day.year, day.month, day.day, 4, tzinfo=zone).timestamp()
            edges = [(int(start), int(start) + 3600 * (13 if early else 16))]
        out += [np.arange(low, high, 300) for low, high in edges]
    return np.unique(np.concatenate(out)) * 1_000_000


def judge_bars(bars: pl.DataFrame, calendar: str, hours: str = "regular") -> Iterator[str]:
    """What is wrong with bars: values, order, repeats, stamps, symbols."""
    if bars.is_empty():
        return
    keys = list(zip(bars["symbol"].to_list(), bars["ts"].dt.epoch("us").to_list(), strict=True))
    if keys != sorted(set(keys)):
        yield "not sorted by symbol and stamp, or a bar twice"
    stamps = np.array([ts for _, ts in keys], dtype=np.int64)
    if calendar == "24/7":
        fits = stamps % BAR_US == 0
    else:
        known = open_stamps(calendar, hours)
        fits = known[np.searchsorted(known, stamps).clip(0, len(known) - 1)] == stamps
    if not fits.all():
        yield f"no bar of {calendar} opens at {bars['ts'][int(np.argmin(fits))]}"
    values = bars.select("open", "high", "low", "close", "volume").to_numpy()
    if not np.isfinite(values).all():
        yield "a value is not finite"
    o, h, l, c, v = values.T  # noqa: E741
    if not ((l > 0) & (l <= o) & (l <= c) & (h >= o) & (h >= c) & (v >= 0)).all():
        yield "prices contradict one another, or a negative volume"
    for symbol in {symbol for symbol, _ in keys}:
        yield from judge_symbol(symbol)


def judge_symbol(symbol: str | None) -> Iterator[str]:
    """What is wrong with the name of a symbol that is stored."""
    if not symbol or len(symbol) > 64 or ".." in symbol or "\\" in symbol or symbol[0] in "/~":
        yield f"symbol {symbol!r}"
    elif any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") for sign in symbol):
        yield f"symbol with a sign nobody sees: {symbol!r}"
    elif symbol != symbol.strip() or any(sign.isspace() and sign != " " for sign in symbol):
        yield f"symbol with an odd blank: {symbol!r}"


def judge_report(report: IngestReport) -> Iterator[str]:
    """Whether every row received is in exactly one place."""
    for row in report.symbols:
        places = row.new + row.revised + row.unchanged + row.duplicates + row.empty + row.held + len(row.quarantined)
        if row.received != places and row.status != "rejected":
            yield f"{row.symbol[:40]!r}: {row.received} rows received, {places} accounted for"
        if row.received < places:
            yield f"{row.symbol[:40]!r}: {row.received} rows received, but {places} accounted for"
    if report.exit_code not in (0, 1, 3):
        yield f"exit code {report.exit_code}"
    text = repr(report.to_dict()) + report.summary()
    if "Traceback" in text or "panicked" in text:
        yield "words of a crash in the report"


def judge_folder(sandbox: Path, allowed: set[str]) -> Iterator[str]:
    """Files that are neither the input nor the store, and names in the store that come from data."""
    for path in sandbox.rglob("*"):
        spot = str(path.relative_to(sandbox))
        if spot in allowed or spot.split("/")[0] == "in":
            continue
        if not (spot.startswith("space/") and STORE.fullmatch(spot.removeprefix("space/"))):
            yield f"left behind: {spot!r}"


def keys_of(bars: pl.DataFrame) -> set[tuple[Any, Any]]:
    """Symbol and stamp of each bar."""
    return set(zip(bars["symbol"].to_list(), bars["ts"].dt.epoch("us").to_list(), strict=True))
