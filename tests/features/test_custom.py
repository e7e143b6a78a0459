"""In: features in SQL. Out: right by plain Python and by polars' own SQL; masked where they are not defined."""

from __future__ import annotations

import math

import polars as pl
import pytest

from klinepred.calendar import place
from klinepred.features.custom import sql_feature
from klinepred.schema import PRICES
from tests.features.formulas import ROWS, SLOW, Value, plain_rows, value_of
from tests.features.frames import market


def _same(found: list[Value], wanted: list[Value]) -> None:
    assert [value is None for value in found] == [value is None for value in wanted]
    known = [value for value in wanted if value is not None]
    assert [value for value in found if value is not None] == pytest.approx(known, rel=1e-9, abs=1e-12)


@pytest.fixture(scope="module")
def bars() -> pl.DataFrame:
    """Two symbols with flat, silent and missing bars, and a lunch break."""
    return market("AB", "XHKG", days=8, still=0.1, silent=0.1, lost=0.05)


@pytest.mark.parametrize("name", SLOW)
def test_values_are_those_of_plain_python(bars: pl.DataFrame, name: str) -> None:
    text, first, slow = SLOW[name]
    rows = plain_rows(bars)
    starts = {row["symbol"]: at for at, row in reversed(list(enumerate(rows)))}
    wanted = [slow(rows, at) if at - starts[row["symbol"]] + 1 >= first else None for at, row in enumerate(rows)]
    found = value_of(bars, text)
    assert sum(value is not None for value in wanted) > 100
    assert [value is None for value in found] == [value is None for value in wanted]
    assert [v for v in found if v is not None] == pytest.approx(
        [v for v in wanted if v is not None], rel=1e-9, abs=1e-12
    )


@pytest.mark.parametrize(
    "text",
    [
        "close / LAG(close, 3) OVER (ORDER BY ts) - 1",
        f"AVG(close) OVER (ORDER BY ts {ROWS})",
        f"SUM(volume) OVER (ORDER BY ts {ROWS})",
        f"MIN(low) OVER (ORDER BY ts {ROWS})",
        f"MAX(high) OVER (ORDER BY ts {ROWS})",
        f"COUNT(close) OVER (ORDER BY ts {ROWS})",
        "LN(close) + LOG(close, 10) + EXP(-close) + SQRT(close) + SIGN(open - close) + ABS(open - close)",
        "POWER(close, 2) - GREATEST(open, close, low) + LEAST(open, close, high)",
        "COALESCE(NULLIF(SIGN(close - open), 1), 7)",
        "CASE WHEN close >= open AND NOT volume < 20000 OR bar = 3 THEN close ELSE open END",
        "CASE WHEN bar BETWEEN 3 AND 9 THEN 1 ELSE 0 END",
        "CASE bar WHEN 1 THEN 2 WHEN 2 THEN 4 END",
        "(close - open) * 2 / (high - low + 1) - -close",
    ],
)
def test_values_are_those_of_polars_own_sql(text: str) -> None:
    whole = market("A", days=6)
    table = place(whole).with_columns(pl.col("bar", "session_bars").cast(pl.Float64))
    wanted = pl.SQLContext(a=table).execute(f"SELECT ({text}) AS a FROM a", eager=True).get_column("a")  # noqa: S608
    first = sql_feature("custom__a", text).first_value
    found = value_of(whole, text)
    _same(found[first - 1 :], wanted.cast(pl.Float64).to_list()[first - 1 :])
    assert found[: first - 1] == [None] * (first - 1)


def test_what_is_not_finite_is_masked_at_once_and_spoils_no_window() -> None:
    bars = market("A", days=6, still=0.2)
    flat = bars.select((pl.col("high") == pl.col("low")).alias("flat")).to_series().to_list()
    zeros = (bars.get_column("close") - bars.get_column("open") == 0.0).to_list()
    assert any(flat)
    for text in ("(close - low) / (high - low)", "1 / (high - low)", "LN(high - low)", "POWER(high - low, -1)"):
        assert [value is None for value in value_of(bars, text)] == flat
    assert [value is None for value in value_of(bars, "SQRT(-ABS(close - open) - 1)")] == [True] * bars.height
    window = value_of(bars, f"AVG(1 / (close - open)) OVER (ORDER BY ts {ROWS})")
    empty = [at >= 5 and all(zeros[at - 5 : at + 1]) for at in range(bars.height)]
    assert [value is None for value in window] == [at < 5 or empty[at] for at in range(bars.height)]


def test_a_deviation_of_equal_values_is_exactly_zero_whatever_came_before() -> None:
    bars = market("A", days=6)
    early = pl.int_range(pl.len()) < 100
    same = bars.with_columns(pl.when(early).then(pl.col(name)).otherwise(50.03).alias(name) for name in PRICES)
    found = value_of(same, f"STDDEV(close) OVER (ORDER BY ts {ROWS})")
    assert set(found[105:]) == {0.0}
    assert set(value_of(same, f"1 / STDDEV(close) OVER (ORDER BY ts {ROWS})")[105:]) == {None}


def test_lag_crosses_a_night_but_no_missing_bar() -> None:
    whole = market("A", days=4)
    places = place(whole)
    first_of_second = places.get_column("bar").to_list().index(0, 1)
    values = value_of(whole, "LAG(close, 1)")
    assert values[1:] == whole.get_column("close").to_list()[:-1]
    assert values[first_of_second] is not None
    gone = whole.filter(pl.int_range(pl.len()) != 10)
    found = value_of(gone, "LAG(close, 3)")
    assert [found[at] is None for at in range(9, 15)] == [False, True, True, True, False, False]
    inside = value_of(whole, "LAG(close, 1) OVER (PARTITION BY session ORDER BY ts)")
    assert [at for at, value in enumerate(inside) if value is None] == [
        at for at, bar in enumerate(places.get_column("bar")) if bar == 0
    ]


def test_a_window_cut_at_the_session_reads_what_is_inside_from_before_it() -> None:
    whole = market("A", days=4)
    text = "SUM(close - LAG(close, 1)) OVER (PARTITION BY session ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
    close, bar = whole.get_column("close").to_list(), place(whole).get_column("bar").to_list()
    found = value_of(whole, text)
    for at in range(3, whole.height):
        steps = [close[spot] - close[spot - 1] for spot in range(at - min(2, bar[at]), at + 1)]
        assert found[at] == pytest.approx(math.fsum(steps), abs=1e-9)
