"""In: literal values. Out: predictions as `predict` makes them, for the tests of the ledger."""

from __future__ import annotations

import polars as pl

from klinepred.schema import BAR, PREDICTION_SCHEMA, TS
from tests.bars.made import utc

MODEL, RUN = "demo-1", "a" * 32


def predicted(
    symbol: str,
    bar: str,
    target: str,
    expected: float | None = 1.0,
    *,
    lo: float | None = -10.0,
    hi: float | None = 10.0,
    model: str = MODEL,
    run_id: str = RUN,
    kind: str = "raw",
    note: str = "",
) -> pl.DataFrame:
    """One row; stamps as ISO text in UTC."""
    row = {
        "symbol": symbol,
        "bar_ts": utc(bar),
        "asof": utc(bar) + BAR,
        "target_ts": utc(target),
        "target": kind,
        "expected_return_bps": expected,
        "p_up": 0.5,
        "lo80_bps": lo,
        "hi80_bps": hi,
        "stale": False,
        "in_training": True,
        "note": note,
        "model": model,
        "run_id": run_id,
    }
    return pl.DataFrame([row], schema=PREDICTION_SCHEMA).with_columns(pl.col("bar_ts", "asof", "target_ts").cast(TS))
