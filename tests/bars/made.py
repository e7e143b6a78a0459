"""In: symbols, days, seeds. Out: bars made by hand or by chance for the tests of the bars room."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from klinepred.calendar import Clock, grid
from klinepred.schema import BAR_SCHEMA
from klinepred.settings import DataSettings

XNYS = Clock("XNYS")
ROUND = Clock("24/7")
NOW = datetime(2026, 11, 30, tzinfo=UTC)
SHARED = Path(__file__).parents[2].parent / "shared"

Row = tuple[str | None, str | None, float | None, float | None, float | None, float | None, float | None]


def utc(text: str) -> datetime:
    """ISO 8601 without offset as UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def rows(*lines: Row) -> pl.DataFrame:
    """Raw bars from literal rows; stamps as ISO text in UTC."""
    table = [(line[0], None if line[1] is None else utc(line[1]), *line[2:]) for line in lines]
    return pl.DataFrame(table, schema=BAR_SCHEMA, orient="row")


def flat(symbol: str, stamp: str, price: float = 10.0, volume: float = 100.0) -> Row:
    """A bar of one price."""
    return symbol, stamp, price, price, price, price, volume


def walk(
    symbols: Sequence[str], *, start: str = "2026-06-01", days: int = 3, seed: int = 1, clock: Clock = XNYS
) -> pl.DataFrame:
    """A random walk on every bar of the calendar; prices in cents, sorted, nothing missing."""
    first = utc(start)
    stamps = grid(clock, first, first + timedelta(days=days)).get_column("ts")
    chance = np.random.default_rng(seed)
    parts = []
    for number, symbol in enumerate(symbols):
        close = np.round(50.0 * (number + 1) * np.exp(np.cumsum(chance.normal(0.0, 1e-3, len(stamps)))), 2)
        open_ = np.round(close * (1.0 + chance.normal(0.0, 5e-4, len(stamps))), 2)
        parts.append(
            pl.DataFrame(
                {
                    "symbol": [symbol] * len(stamps),
                    "ts": stamps,
                    "open": open_,
                    "high": np.maximum(open_, close) + 0.01,
                    "low": np.minimum(open_, close) - 0.01,
                    "close": close,
                    "volume": chance.integers(1, 1_000_000, len(stamps)).astype(float),
                },
                schema=BAR_SCHEMA,
            )
        )
    return pl.concat(parts).sort("symbol", "ts")


def from_files(*paths: Path, **options: object) -> DataSettings:
    """Settings that take in files; by XNYS unless `options` name a calendar."""
    table = {"source": "files", "paths": tuple(str(path) for path in paths), **options}
    return DataSettings.model_validate(table)
