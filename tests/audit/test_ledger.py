"""In: a handful of closes. Out: the ledger says what one works out on paper, and so does the dataset."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime

import numpy as np
import polars as pl

from klinepred.audit.ledger import read_ledger
from klinepred.schema import CALENDAR, TS


def _day(text: str) -> int:
    return (date.fromisoformat(text) - date(1970, 1, 1)).days


def _bars(*rows: tuple[str, float]) -> pl.DataFrame:
    stamps = [datetime.fromisoformat(text).replace(tzinfo=UTC) for text, _ in rows]
    return pl.DataFrame(
        {"symbol": "A", "ts": pl.Series(stamps, dtype=TS), "close": [price for _, price in rows]}
    ).with_columns(pl.lit("XNYS").alias(CALENDAR))


BARS = _bars(
    ("2025-07-03T16:45", 10.0),  # a half day: it ends at 17:00 UTC, and 4 July is a holiday
    ("2025-07-03T16:50", 11.0),
    ("2025-07-03T16:55", 12.0),
    ("2025-07-07T13:30", 13.0),
    ("2025-07-07T13:40", 15.0),  # 13:35 is missing
    ("2025-07-07T13:45", 16.0),
)


def test_returns_run_over_half_days_and_holidays_but_never_over_a_missing_bar() -> None:
    truth = read_ledger(BARS, BARS, calendars={"A": "XNYS"}, horizon=1)
    want = [math.log(11 / 10), math.log(12 / 11), math.log(13 / 12), math.nan, math.log(16 / 15), math.nan]
    np.testing.assert_allclose(truth.return_N, want, rtol=1e-14)
    assert truth.place_N.tolist() == [0, 1, 2, 3, 5, 6]
    assert truth.first_session_N.tolist()[:3] == [_day("2025-07-03"), _day("2025-07-03"), _day("2025-07-07")]
    assert truth.bars_N.tolist() == [1, 2, 3, 4, 5, 6]
    assert truth.sessions_N.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_longer_return_needs_every_bar_between() -> None:
    truth = read_ledger(BARS, BARS, calendars={"A": "XNYS"}, horizon=3)
    assert np.isfinite(truth.return_N).tolist() == [True, False, False, False, False, False]
    assert truth.return_N[0] == math.log(13.0) - math.log(10.0)
    assert truth.last_session_N[0] == _day("2025-07-07")
    ends = datetime.fromtimestamp(truth.end_N[0] / 1e6, UTC)
    assert ends == datetime(2025, 7, 7, 13, 35, tzinfo=UTC)


def test_a_row_that_is_no_bar_has_no_place() -> None:
    rows = _bars(("2025-07-07T13:35", 14.0), ("2025-07-05T14:00", 14.0), ("2025-07-07T13:40", 15.0))
    truth = read_ledger(BARS, rows, calendars={"A": "XNYS"}, horizon=1)
    assert truth.place_N.tolist() == [-1, -1, 5]
    assert np.isnan(truth.close_N).tolist() == [True, True, False]
