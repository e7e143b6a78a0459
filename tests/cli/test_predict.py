"""In: predictions. Out: the rows asked for, in the order asked for."""

from __future__ import annotations

import polars as pl
import pytest

from klinepred.cli.predict import chosen

ROWS = pl.DataFrame(
    {
        "symbol": ["A", "B", "C", "D"],
        "expected_return_bps": [1.0, -3.0, 2.0, None],
        "p_up": [0.51, 0.48, 0.53, 0.5],
        "lo80_bps": [-10.0, -5.0, -40.0, -1.0],
        "hi80_bps": [10.0, 5.0, 40.0, 1.0],
    }
)


@pytest.mark.parametrize(
    ("order", "top", "symbols"),
    [
        (None, None, "ABCD"),
        ("symbol", 2, "AB"),
        (None, 2, "BC"),  # the largest moves, up or down
        ("size", None, "BCAD"),
        ("expected", None, "CABD"),
        ("expected", 1, "C"),
        ("p_up", None, "CADB"),
        ("width", 3, "CAB"),
        (None, 99, "BCAD"),
    ],
)
def test_rows_come_in_the_order_asked_for(order: str | None, top: int | None, symbols: str) -> None:
    assert "".join(chosen(ROWS, order=order, top=top)["symbol"]) == symbols
