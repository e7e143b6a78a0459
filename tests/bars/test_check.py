"""In: frames with one fault each. Out: `check_bars` lets good ones through unchanged and names each fault."""

from __future__ import annotations

import polars as pl
import pytest

from klinepred.bars.check import check_bars
from klinepred.calendar import Clock
from klinepred.errors import BarsError
from klinepred.schema import BAR_SCHEMA, CALENDAR
from tests.bars.made import XNYS, walk


def test_good_bars_come_out_unchanged_with_their_calendar() -> None:
    frame = walk(["AAA", "BBB"])
    out = check_bars(frame, clock=XNYS).collect()
    assert out.select(BAR_SCHEMA.keys()).equals(frame)
    assert out.schema[CALENDAR] == pl.Categorical
    assert out[CALENDAR].unique().to_list() == ["XNYS"]


def test_the_calendar_of_each_row_may_come_with_the_bars() -> None:
    frame = walk(["AAA"]).with_columns(pl.lit("XNYS").alias(CALENDAR))
    assert check_bars(frame.lazy()).collect().height == frame.height


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (pl.col("close").replace(pl.col("close").first(), None), "close is missing"),
        (pl.lit(float("nan")).alias("open"), "open is missing"),
        (pl.lit(float("inf")).alias("volume"), "infinite"),
        (pl.lit(1e31).alias("volume"), "above 1e30"),
        (pl.lit(1e300).alias("high"), "above 1e15"),
        (pl.lit(5e-324).alias("low"), "below 1e-20"),
        (pl.lit(-1.0).alias("volume"), "volume is negative"),
        (pl.lit(0.0).alias("low"), "zero or negative"),
        ((pl.col("low") - 0.001).alias("high"), "high is below low"),
        ((pl.max_horizontal("open", "close") - 0.001).alias("high"), "high is below"),
        ((pl.min_horizontal("open", "close") + 0.001).alias("low"), "low is above"),
        (pl.col("ts").dt.offset_by("1m"), "no bar of it opens"),
        (pl.col("ts").dt.offset_by("12h"), "no bar of it opens"),
        (pl.col("ts").reverse(), "not sorted"),
        (pl.col("ts").first(), "there twice"),
        (pl.lit("../evil").alias("symbol"), "no possible name"),
    ],
)
def test_each_broken_guarantee_is_named(fault: pl.Expr, words: str) -> None:
    with pytest.raises(BarsError, match=words):
        check_bars(walk(["AAA"]).with_columns(fault), clock=XNYS)


def test_wrong_columns_and_dtypes_are_refused() -> None:
    frame = walk(["AAA"])
    with pytest.raises(BarsError, match="column volume"):
        check_bars(frame.drop("volume"), clock=XNYS)
    with pytest.raises(BarsError, match="column open"):
        check_bars(frame.with_columns(pl.col("open").cast(pl.Float32)), clock=XNYS)
    with pytest.raises(BarsError, match="calendar"):
        check_bars(frame)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [("low", 1e-20, 9.9e-21), ("high", 1e15, 1.01e15), ("volume", 1e30, 1.01e30), ("volume", 0.0, -1e-9)],
)
def test_the_limits_themselves_are_possible(name: str, good: float, bad: float) -> None:
    frame = walk(["AAA"])
    check_bars(frame.with_columns(pl.lit(good).alias(name)), clock=XNYS)
    with pytest.raises(BarsError, match=name if name == "volume" else "a price"):
        check_bars(frame.with_columns(pl.lit(bad).alias(name)), clock=XNYS)


def test_a_bar_of_one_price_is_possible_and_a_long_name_up_to_64_signs() -> None:
    frame = walk(["AAA"]).with_columns(pl.lit(5.0).alias(name) for name in ("open", "high", "low", "close"))
    assert check_bars(frame, clock=XNYS).collect().height == frame.height
    check_bars(frame.with_columns(symbol=pl.lit("A" * 64)), clock=XNYS)
    with pytest.raises(BarsError, match="no possible name"):
        check_bars(frame.with_columns(symbol=pl.lit("A" * 65)), clock=XNYS)


@pytest.mark.parametrize("name", ["symbol", "ts"])
def test_the_first_broken_row_is_named_with_how_many_there_are(name: str) -> None:
    frame = walk(["AAA", "BBB"])
    spots = pl.int_range(pl.len()).is_in([7, 9])
    with pytest.raises(BarsError) as caught:
        check_bars(frame.with_columns(volume=pl.when(spots).then(-1.0).otherwise("volume")), clock=XNYS)
    assert f"2 rows where volume is negative, first at {frame['ts'][7]:%Y-%m-%dT%H:%M:%SZ}" in caught.value.got
    with pytest.raises(BarsError, match="2 rows where a symbol or stamp is null"):
        check_bars(frame.with_columns(pl.when(~spots).then(name).alias(name)), clock=XNYS)


def test_each_row_is_held_against_its_own_calendar() -> None:
    parts = [walk(["A"]).with_columns(calendar=pl.lit("XNYS"))]
    parts.append(walk(["B"], clock=Clock("24/7"), days=1).with_columns(calendar=pl.lit("24/7")))
    frame = pl.concat(parts)
    assert check_bars(frame).collect().select(BAR_SCHEMA.keys()).equals(frame.select(BAR_SCHEMA.keys()))
    with pytest.raises(BarsError, match="bars of B"):
        check_bars(frame.with_columns(calendar=pl.lit("XNYS")))


def test_a_symbol_by_two_calendars_is_refused() -> None:
    """All stamps are bars of either: which session one lies in would change from row to row."""
    frame = walk(["AAA", "BBB"])
    here = pl.col("symbol") == "BBB"
    clock = pl.when(here & (pl.col("ts") > pl.col("ts").median())).then(pl.lit("24/7")).otherwise(pl.lit("XNYS"))
    with pytest.raises(BarsError, match="bars of BBB: column calendar") as told:
        check_bars(frame.with_columns(calendar=clock))
    assert told.value.got == "24/7 and XNYS"
