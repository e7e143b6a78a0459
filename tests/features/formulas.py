"""In: nothing. Out: formulas, what plain Python makes of some of them, and what klinepred does."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Final

import polars as pl

from klinepred.calendar import place
from klinepred.features.build import compute_features
from klinepred.features.custom import sql_feature
from klinepred.features.spec import FeatureSet
from klinepred.formula.tree import WINDOWS

Value = float | None
Row = dict[str, float]

ROWS = "ROWS BETWEEN 5 PRECEDING AND CURRENT ROW"


def set_of(**formulas: str) -> FeatureSet:
    return FeatureSet("own", tuple(sql_feature(f"custom__{name}", text) for name, text in formulas.items()))


def value_of(bars: pl.DataFrame, text: str) -> list[Value]:
    return compute_features(bars, set_of(a=text), dtype=pl.Float64()).get_column("custom__a").to_list()


def plain_rows(bars: pl.DataFrame) -> list[Row]:
    names = ["symbol", "open", "high", "low", "close", "volume", "session", "slot", "bar", "session_bars"]
    return [dict(row) for row in place(bars).select(names).iter_rows(named=True)]


def _back(rows: Sequence[Row], at: int, bars: int) -> Row | None:
    """The row `bars` rows before, of the same symbol and with nothing missing between."""
    if at < bars or rows[at]["symbol"] != rows[at - bars]["symbol"]:
        return None
    return rows[at - bars] if rows[at]["slot"] - rows[at - bars]["slot"] == bars else None


def _last(rows: Sequence[Row], at: int, bars: int, *, session: bool = False) -> list[Row]:
    """The row and the `bars` before it, of its symbol (and session)."""
    return [
        row
        for row in rows[max(0, at - bars) : at + 1]
        if row["symbol"] == rows[at]["symbol"] and (not session or row["session"] == rows[at]["session"])
    ]


def _momentum(rows: Sequence[Row], at: int) -> Value:
    before = _back(rows, at, 3)
    return None if before is None else math.log(rows[at]["close"] / before["close"])


def _average(rows: Sequence[Row], at: int) -> Value:
    known = _last(rows, at, 5)
    return rows[at]["volume"] / (sum(row["volume"] for row in known) / len(known)) - 1.0


def _deviation(rows: Sequence[Row], at: int) -> Value:
    closes = [row["close"] for row in _last(rows, at, 5, session=True)]
    return statistics.stdev(closes) if len(closes) > 1 else None


def _returns(rows: Sequence[Row], at: int) -> Value:
    """Sum over the last six bars of one-bar returns, those across a missing bar left out."""
    spots = [spot for spot in range(max(0, at - 5), at + 1) if rows[spot]["symbol"] == rows[at]["symbol"]]
    found = [math.log(rows[spot]["close"] / one["close"]) for spot in spots if (one := _back(rows, spot, 1))]
    return math.fsum(found) if found else None


def _case(rows: Sequence[Row], at: int) -> Value:
    row = rows[at]
    if row["close"] > row["open"]:
        return 1.0
    if row["close"] < row["open"]:
        return -1.0 if row["volume"] > 20_000.0 else -0.5
    return None


def _location(rows: Sequence[Row], at: int) -> Value:
    row = rows[at]
    return None if row["high"] == row["low"] else (row["close"] - row["low"]) / (row["high"] - row["low"])


def _functions(rows: Sequence[Row], at: int) -> Value:
    row = rows[at]
    body = row["close"] - row["open"]
    sign = (body > 0) - (body < 0)
    clock = row["bar"] / row["session_bars"]
    return max(min(sign * math.sqrt(abs(body)), 0.1), -0.1) + math.exp(-clock) + clock**2 + math.log10(row["close"])


SLOW: Final[dict[str, tuple[str, int, Callable[[Sequence[Row], int], Value]]]] = {
    "lag": ("LN(close / LAG(close, 3) OVER (PARTITION BY symbol ORDER BY ts))", 4, _momentum),
    "avg": (f"volume / AVG(volume) OVER (ORDER BY ts {ROWS}) - 1", 6, _average),
    "stddev": (f"STDDEV(close) OVER (PARTITION BY session ORDER BY ts {ROWS})", 6, _deviation),
    "nested": (f"SUM(LN(close / LAG(close, 1))) OVER (ORDER BY ts {ROWS})", 7, _returns),
    "case": (
        "CASE WHEN close > open THEN 1 WHEN close < open AND volume > 20000 THEN -1 WHEN close < open THEN -0.5 END",
        1,
        _case,
    ),
    "location": ("(close - low) / NULLIF(high - low, 0)", 1, _location),
    "functions": (
        "GREATEST(LEAST(SIGN(close - open) * SQRT(ABS(close - open)), 0.1), -0.1) + EXP(-bar / session_bars)"
        " + POWER(bar / session_bars, 2) + LOG10(close)",
        1,
        _functions,
    ),
}


ALL: Final = set_of(
    **{name: text for name, (text, _, _) in SLOW.items()},
    **{f"{name.lower()}_lag": f"{name}(close / LAG(close, 2)) OVER (ORDER BY ts {ROWS})" for name in WINDOWS},
    **{f"{name.lower()}_raw": f"{name}(volume) OVER (ORDER BY ts ROWS 30 PRECEDING)" for name in WINDOWS},
    **{
        f"{name.lower()}_cut": f"{name}(1 / (close - open)) OVER (PARTITION BY segment ORDER BY ts {ROWS})"
        for name in WINDOWS
    },
)
