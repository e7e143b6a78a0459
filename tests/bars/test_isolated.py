"""In: prices with slips, spikes, moves and wicks. Out: slips are found, whatever trading can do is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from klinepred.bars.isolated import find_isolated, tick_of
from klinepred.schema import BAR_SCHEMA
from tests.bars.made import utc

Prices = tuple[float, float, float, float]
START = utc("2026-06-01T13:30:00")


def bars(*prices: Prices | float, symbol: str = "A", minutes: Sequence[int] | None = None) -> pl.DataFrame:
    """Open, high, low, close of neighbouring bars; one number = a bar of one price."""
    table = [
        (
            symbol,
            START + timedelta(minutes=minutes[n] if minutes else 5 * n),
            *((p,) * 4 if isinstance(p, float) else p),
            9.0,
        )
        for n, p in enumerate(prices)
    ]
    return pl.DataFrame(table, schema=BAR_SCHEMA, orient="row").with_columns(mine=pl.lit(False))


def spots(frame: pl.DataFrame) -> list[int]:
    """Which bars are found, by number."""
    found = find_isolated(frame)["ts"].to_list()
    return [n for n, ts in enumerate(frame["ts"].to_list()) if ts in found]


def calm(count: int, price: float = 50.0) -> list[float]:
    return [price + 0.01 * (n % 3) for n in range(count)]


@pytest.mark.parametrize("factor", [100.0, 0.01, 10.0, 0.1, 1000.0, 37.0, 5.5, 1 / 5.5])
def test_a_bar_far_off_both_neighbours_is_found(factor: float) -> None:
    frame = bars(*calm(6), 50.0 * factor, *calm(6))
    assert spots(frame) == [6]


def test_the_reason_names_the_factor() -> None:
    up = find_isolated(bars(*calm(6), 5000.0, *calm(6)))["reason"].to_list()
    down = find_isolated(bars(*calm(6), 0.5, *calm(6)))["reason"].to_list()
    odd = find_isolated(bars(*calm(6), 1850.0, *calm(6)))["reason"].to_list()
    assert up == ["100 times its neighbours: an isolated price error"]
    assert down == ["1/100 of its neighbours: an isolated price error"]
    assert odd == ["37 times its neighbours: an isolated price error"]


@pytest.mark.parametrize(("run", "found"), [(1, True), (2, True), (3, True), (4, False), (20, False)])
def test_a_short_run_is_an_error_and_a_level_that_stays_is_a_move(run: int, found: bool) -> None:
    frame = bars(*calm(8), *calm(run, 5000.0), *calm(8))
    assert spots(frame) == (list(range(8, 8 + run)) if found else [])


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ((50.0, 5010.0, 49.9, 50.1), "its high is 100 times the rest of the bar"),
        ((50.0, 50.2, 0.499, 50.1), "its low is 1/100 of the rest of the bar"),
        ((50.0, 5010.0, 49.9, 5005.0), "100 times its neighbours"),
        ((5000.0, 5010.0, 49.9, 50.1), "100 times its neighbours"),
        ((50.0, 50.2, 0.5, 0.501), "1/100 of its neighbours"),
        ((0.5, 50.2, 0.499, 50.1), "1/100 of its neighbours"),
        ((5000.0, 5010.0, 49.9, 5005.0), "100 times its neighbours"),
    ],
)
def test_single_fields_by_whole_decimal_places_are_found(bad: Prices, words: str) -> None:
    frame = bars(*calm(6), bad, *calm(6))
    assert spots(frame) == [6]
    assert words in find_isolated(frame)["reason"][0]


def test_an_error_that_begins_and_ends_within_bars_is_found_whole() -> None:
    frame = bars(*calm(6), (50.0, 5000.0, 50.0, 5000.0), 5001.0, (5002.0, 5002.0, 50.0, 50.0), *calm(6))
    assert spots(frame) == [6, 7, 8]


@pytest.mark.parametrize(
    "prices",
    [
        pytest.param([*calm(8), *calm(8, 200.0)], id="a biotech up 300 % that stays"),
        pytest.param([*calm(8), *calm(8, 25.0)], id="a halving that stays"),
        pytest.param([*calm(8), *calm(8, 5.0)], id="one for ten, unadjusted"),
        pytest.param([*calm(8), (50.0, 50.1, 20.0, 49.5), *calm(8)], id="a wick of minus 60 %"),
        pytest.param([*calm(8), (50.0, 50.1, 6.2, 49.5), *calm(8)], id="a wick of minus 88 %"),
        pytest.param([*calm(8), (50.0, 50.0, 6.0, 6.1), (6.1, 49.0, 6.0, 48.0), *calm(8)], id="a crash over two bars"),
        pytest.param([*calm(8), (50.0, 300.0, 50.0, 280.0), *calm(8, 290.0)], id="five times within a bar, and on"),
        pytest.param([*calm(8), 250.0, *calm(8)], id="exactly five times"),
    ],
)
def test_what_trading_can_do_is_left_alone(prices: list[Prices | float]) -> None:
    assert spots(bars(*prices)) == []


def test_penny_quotes_a_few_ticks_apart_are_left_alone() -> None:
    assert spots(bars(0.01, 0.01, 0.02, 0.01, 0.01, 0.06, 0.01, 0.02, 0.01, 0.01, 0.01)) == []
    assert spots(bars(0.01, 0.01, 0.02, 0.01, 0.01, 1.00, 0.01, 0.02, 0.01, 0.01, 0.01)) == [5]
    for price in (5.29e-5, 3e-9):
        assert spots(bars(*[price] * 6, price * 100.0, *[price] * 6)) == [6]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_single_odd_bar_among_three_is_found(at: int) -> None:
    prices = [50.0, 50.1, 50.2]
    prices[at] *= 100.0
    assert spots(bars(*prices)) == [at]


def test_two_bars_alone_say_nothing_of_each_other() -> None:
    assert spots(bars(50.0, 5000.0)) == []
    assert spots(bars(50.0, 50.0, 5000.0, 5000.0)) == []


@pytest.mark.parametrize("side", ["first", "last"])
@pytest.mark.parametrize("run", [1, 3])
def test_at_an_end_only_one_side_speaks_and_the_reason_says_so(side: str, run: int) -> None:
    odd = calm(run, 5000.0)
    frame = bars(*odd, *calm(8)) if side == "first" else bars(*calm(8), *odd)
    found = find_isolated(frame)
    assert found.height == run
    where = "after it, with none before it" if side == "first" else "before it, with none after it"
    assert set(found["reason"]) == {f"100 times the bar {where}: an unconfirmed price"}


def test_a_level_confirmed_by_a_fourth_bar_stands() -> None:
    assert spots(bars(*calm(8), *calm(4, 5000.0))) == []
    assert spots(bars(*calm(4, 5000.0), *calm(8))) == []


def test_alternating_errors_are_told_by_the_level_around_them() -> None:
    assert spots(bars(*calm(6), 5000.0, 50.0, 0.5, 50.0, 5000.0, *calm(6))) == [6, 8, 10]
    assert spots(bars(*calm(6), 5000.0, 0.5, *calm(6))) == [6, 7]


def test_days_between_neighbours_say_nothing() -> None:
    day = 1440
    apart = bars(
        50.0,
        50.0,
        50.0,
        50.0,
        500.0,
        50.0,
        50.0,
        50.0,
        50.0,
        minutes=[0, 5, 10, 15, 3 * day, *(6 * day + 5 * n for n in range(4))],
    )
    assert spots(apart) == []
    close = bars(
        50.0,
        50.0,
        50.0,
        50.0,
        500.0,
        50.0,
        50.0,
        50.0,
        50.0,
        minutes=[0, 5, 10, 15, 20, *(3 * day + 5 * n for n in range(4))],
    )
    assert spots(close) == [4]


def test_no_symbol_is_compared_with_another() -> None:
    frame = pl.concat([bars(*calm(3)), bars(*calm(3, 5000.0), symbol="B"), bars(*calm(3, 0.5), symbol="C")])
    assert find_isolated(frame).is_empty()


@pytest.mark.parametrize(("after", "found"), [(70.0, [8]), (35.0, [8]), (100.0, []), (26.0, [])])
def test_what_lies_between_levels_that_do_not_agree_may_be_on_its_way(after: float, found: list[int]) -> None:
    """They agree within a factor of 1.5."""
    assert spots(bars(*calm(8), 5000.0, *calm(8, after))) == found


@pytest.mark.parametrize(("hours", "found"), [(23, [4]), (24, [4]), (25, []), (47, [])])
def test_neighbours_are_neighbours_for_a_day(hours: int, found: list[int]) -> None:
    times = [0, 5, 10, 15, *(15 + 60 * hours + n for n in (0, 60 * hours, 60 * hours + 5, 60 * hours + 10))]
    times.append(times[-1] + 5)
    assert spots(bars(*calm(4), 500.0, *calm(4), minutes=times)) == found
    wick = (50.0, 5010.0, 49.9, 50.1)
    assert spots(bars(*calm(4), wick, *calm(4), minutes=times)) == found


@pytest.mark.parametrize(
    ("bar", "found"),
    [
        ((50.0, 535.0, 50.0, 50.0), True),  # 10.7 times: within 10 % above a power of ten
        ((50.0, 560.0, 50.0, 50.0), False),  # 11.2 times
        ((50.0, 495.0, 50.0, 50.0), True),  # 9.9 times: 1 % below
        ((50.0, 490.0, 50.0, 50.0), False),  # 9.8 times
        ((50.0, 50.0, 4.67, 50.0), True),
        ((50.0, 50.0, 4.46, 50.0), False),
        ((50.0, 5900.0, 50.0, 59.0), True),  # open and close differ by 1.18
        ((50.0, 6100.0, 50.0, 61.0), False),  # by 1.22: a wild bar
        ((59.0, 59.0, 0.5, 50.0), True),
        ((61.0, 61.0, 0.5, 50.0), False),
    ],
)
def test_a_wick_is_an_error_by_whole_decimal_places_of_a_calm_bar(bar: Prices, found: bool) -> None:
    assert spots(bars(*calm(6), bar, *calm(6))) == ([6] if found else [])


def test_a_wick_at_an_end_is_found_and_of_a_bar_alone_nothing_is_said() -> None:
    wick = (50.0, 5010.0, 49.9, 50.1)
    assert spots(bars(wick, *calm(3))) == [0]
    assert spots(bars(*calm(3), wick)) == [3]
    assert spots(bars(wick)) == []


@pytest.mark.parametrize(
    ("stored", "backed"), [((), False), ((0,), True), ((12,), True), ((6,), False), ((5, 7), True)]
)
def test_a_verdict_is_backed_by_stored_bars_of_the_level_it_was_compared_with(
    stored: tuple[int, ...], backed: bool
) -> None:
    frame = bars(*calm(6), 5000.0, *calm(6))
    mine = pl.Series("mine", [number in stored for number in range(13)])
    assert find_isolated(frame.with_columns(mine))["backed"].to_list() == [backed]


def test_the_step_of_quotes_is_the_largest_power_of_ten_that_divides_them_all() -> None:
    cases = [([10.0, 25.0], 1.0), ([0.01, 3.06], 0.01), ([0.5, 0.25], 0.01), ([5e-12], 1e-12), ([5e-13], 0.0)]
    for prices, step in cases:
        assert tick_of(np.array(prices)) == pytest.approx(step, rel=1e-12, abs=0.0)
    assert tick_of(np.array([0.1, 250.99], dtype=np.float32).astype(np.float64)) == pytest.approx(0.01)


@pytest.mark.parametrize("factor", [5.5, 1 / 5.5])
def test_a_step_on_the_way_from_one_level_to_another_is_no_error(factor: float) -> None:
    """It lies above the one and below the other: it may be a move in two leaps, one of them over a holiday."""
    prices = [*calm(8), 50.0 * factor, *calm(8, 50.0 * factor**2)]
    holiday = [5 * n if n < 8 else 20_000 + 5 * n for n in range(len(prices))]
    assert spots(bars(*prices, minutes=holiday)) == []
    back = [*calm(8), 50.0 * factor, *calm(8)]
    assert spots(bars(*back, minutes=holiday)) == [8], "off both sides it is one"
