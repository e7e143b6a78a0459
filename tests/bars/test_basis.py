"""In: received beside stored bars. Out: a split, another unit or another instrument is told, and where it lies."""

from __future__ import annotations

from fractions import Fraction

import polars as pl
import pytest

from klinepred.bars.basis import Edge, Measured, Shift, in_words, measure, usual_factor
from klinepred.bars.reconcile import compare
from klinepred.schema import PRICES
from tests.bars.made import walk


def scaled(frame: pl.DataFrame, factor: float, *, volume: float = 1.0, digits: int = 2) -> pl.DataFrame:
    return frame.with_columns(
        *((pl.col(name) * factor).round(digits) for name in PRICES), (pl.col("volume") * volume).round(0)
    )


def seen(received: pl.DataFrame, stored: pl.DataFrame) -> Measured:
    return measure(compare(received, stored).filter(pl.col("_close").is_not_null()))


def only(measured: Measured) -> Shift:
    (shift,) = measured.shifts.values()
    return shift


@pytest.mark.parametrize(
    ("factor", "exact"),
    [(0.25, Fraction(1, 4)), (100.0, Fraction(100)), (0.1, Fraction(1, 10)), (1.5, Fraction(3, 2))],
)
def test_a_constant_ratio_is_told_by_its_exact_factor(factor: float, exact: Fraction) -> None:
    stored = walk(["A", "B"])
    a, b = stored.filter(pl.col("symbol") == "A"), stored.filter(pl.col("symbol") == "B")
    out = seen(pl.concat([scaled(a, factor), b]), stored)
    shift = only(out)
    assert (shift.symbol, shift.ratio, shift.side) == ("A", exact, "whole")
    assert (shift.same, shift.common) == (234, 234)
    assert not out.strange
    assert not out.doubtful


def test_an_unusual_ratio_is_measured_over_all_its_bars() -> None:
    stored = walk(["A"])
    shift = only(seen(scaled(stored, 1.2345), stored))
    assert shift.ratio == pytest.approx(1.2345, rel=1e-5)


@pytest.mark.parametrize(("volume", "word"), [(4.0, "split"), (1.0, "unit"), (0.0, "neither"), (2.0, "neither")])
def test_volumes_tell_a_split_from_a_unit(volume: float, word: str) -> None:
    stored = walk(["A"])
    assert only(seen(scaled(stored, 0.25, volume=volume), stored)).volume == word


def test_volumes_of_zero_tell_nothing() -> None:
    stored = walk(["A"]).with_columns(volume=pl.lit(0.0))
    assert only(seen(scaled(stored, 0.25), stored)).volume == "zero"


def test_a_few_late_revisions_do_not_hide_a_split() -> None:
    stored = walk(["A"])
    received = scaled(stored, 0.25, volume=4.0)
    odd = pl.int_range(pl.len()) % 50 == 49
    received = received.with_columns(
        close=pl.when(odd).then(pl.col("close") * 1.02).otherwise("close"),
        volume=pl.when(odd).then(pl.col("volume") + 500.0).otherwise("volume"),
    )
    shift = only(seen(received, stored))
    assert (shift.ratio, shift.same, shift.volume, shift.side) == (Fraction(1, 4), 230, "split", "whole")


def test_the_side_of_the_ratio_and_its_edges_are_told() -> None:
    stored = walk(["A"])
    head, tail = stored.head(150), stored.slice(150)
    older = only(seen(pl.concat([scaled(head, 0.5), tail]), stored))
    assert older.side == "older"
    assert (older.first, older.last) == (head["ts"][0], head["ts"][-1])
    assert older.after == Edge(tail["ts"][0], tail["close"][0])
    newer = only(seen(pl.concat([head, scaled(tail, 0.5)]), stored))
    assert newer.side == "newer"
    assert newer.before == Edge(head["ts"][-1], head["close"][-1])
    middle = pl.concat([stored.head(50), scaled(stored.slice(50, 100), 0.5), stored.slice(150)])
    assert only(seen(middle, stored)).side == "between"


def test_which_history_has_the_jump_is_seen_where_the_ratio_ends() -> None:
    smooth = walk(["A"])
    raw = pl.concat([scaled(smooth.head(150), 2.0), smooth.slice(150)])
    assert only(seen(smooth, raw)).steps == "stored"
    assert only(seen(raw, smooth)).steps == "received"
    both = pl.concat([scaled(smooth.head(150), 8.0), smooth.slice(150)])
    half = pl.concat([scaled(smooth.head(150), 4.0), smooth.slice(150)])
    assert only(seen(half, both)).steps is None


def test_a_split_seen_on_one_common_bar_is_told_and_an_odd_ratio_there_is_not() -> None:
    stored = walk(["A"]).head(1)
    assert only(seen(scaled(walk(["A"]).head(5), 0.1), stored)).ratio == Fraction(1, 10)
    assert not seen(scaled(walk(["A"]).head(5), 0.37), stored).shifts


def test_another_instrument_under_the_name_is_told() -> None:
    stored = walk(["A"], seed=1)
    received = walk(["A"], seed=2).with_columns(pl.col(name) * 3.0 * (1 + pl.col("volume") / 1e6) for name in PRICES)
    assert "another instrument" in seen(received, stored).strange["A"]


def test_late_revisions_of_a_few_bars_are_no_shift_but_a_doubt() -> None:
    stored = walk(["A"])
    received = stored.with_columns(
        close=pl.when(pl.int_range(pl.len()) % 50 == 0).then(pl.col("close") * 1.03).otherwise("close")
    )
    out = seen(received, stored)
    assert not out.shifts
    assert not out.strange
    assert out.doubtful == {"A"}


def test_a_small_constant_ratio_on_all_bars_is_no_revision() -> None:
    stored = walk(["A"])
    assert only(seen(scaled(stored, 1.004, digits=4), stored)).ratio == pytest.approx(1.004, rel=1e-5)
    assert not seen(scaled(stored, 1.00001, digits=4), stored).shifts


def test_factors_in_words() -> None:
    assert in_words(Fraction(1, 4)) == "1/4 of"
    assert in_words(Fraction(3, 2)) == "3/2 times"
    assert in_words(Fraction(100)) == "100 times"
    assert in_words(1.2345) == "1.2345 times"
    assert in_words(1 / 1.2345) == "1/1.2345 of"
    assert usual_factor(0.2501, 0.004) == Fraction(1, 4)
    assert usual_factor(0.27, 0.004) is None
