"""In: stamps and numbers as people write them. Out: the moment, the value, or a refusal where two readings fit."""

from __future__ import annotations

from datetime import datetime

import polars as pl
import pytest

from klinepred.bars.sources.numbers import read_numbers
from klinepred.bars.sources.stamps import read_stamps
from klinepred.errors import SourceError
from tests.bars.made import utc


@pytest.mark.parametrize(
    ("texts", "stamp"),
    [
        (["2026-06-01T13:30:00Z"], "2026-06-01T13:30:00"),
        (["2026-06-01 13:30:00.250+00:00"], "2026-06-01T13:30:00.250"),
        (["2026-06-01 09:30:00-0400"], "2026-06-01T13:30:00"),
        (["2026-06-01 09:30:00-04"], "2026-06-01T13:30:00"),
        (["2026-06-01 13:30 UTC"], "2026-06-01T13:30:00"),
        (["2026-06-01 09:30:00"], "2026-06-01T13:30:00"),
        (["2026-6-1 9:30:0"], "2026-06-01T13:30:00"),
        (["2026.06.01 09:30"], "2026-06-01T13:30:00"),
        (["2026/06/01 09:30:00"], "2026-06-01T13:30:00"),
        (["01.06.2026 09:30"], "2026-06-01T13:30:00"),
        (["20260601 093000"], "2026-06-01T13:30:00"),
        (["20260601  09:30:00"], "2026-06-01T13:30:00"),
        (["20260601093000"], "2026-06-01T13:30:00"),
        (["20260601093000000"], "2026-06-01T13:30:00"),
        (["06/01/2026 09:30", "06/15/2026 09:30"], "2026-06-01T13:30:00"),
        (["01/06/2026 09:30", "15/06/2026 09:30"], "2026-06-01T13:30:00"),
        (["06/01/2026 1:30 PM", "06/15/2026 1:30 PM"], "2026-06-01T17:30:00"),
        (["20260601 09:30:00 US/Eastern"], "2026-06-01T13:30:00"),
        (["2026-06-01 10:30:00 America/Argentina/Buenos_Aires"], "2026-06-01T13:30:00"),
        (["1780320600"], "2026-06-01T13:30:00"),
        (["1780320600.5"], "2026-06-01T13:30:00.500"),
        (["1780320600000"], "2026-06-01T13:30:00"),
        (["1780320600000000"], "2026-06-01T13:30:00"),
        (["1780320600000000000"], "2026-06-01T13:30:00"),
        (["-", "2026-06-01T13:30:00Z", "2026-06-01T13:35:00Z"][::-1], "2026-06-01T13:35:00"),
    ],
)
def test_a_stamp_in_each_form(texts: list[str], stamp: str) -> None:
    got = read_stamps(pl.Series("t", texts), time=None, symbol=None, tz=None, zone="America/New_York", where="f")
    assert got.ts[0] == utc(stamp)


def test_numbers_are_epochs_whose_unit_each_value_tells() -> None:
    column = pl.Series("t", [1780320600, 1780320600000, 1780320600000000, 1780320600000000000])
    got = read_stamps(column, time=None, symbol=None, tz=None, zone="UTC", where="f").ts
    assert got.to_list() == [utc("2026-06-01T13:30:00")] * 4
    got = read_stamps(column.head(2).cast(pl.Float64), time=None, symbol=None, tz=None, zone="UTC", where="f").ts
    assert got.to_list() == [utc("2026-06-01T13:30:00")] * 2
    with pytest.raises(SourceError, match="since 1970"):
        read_stamps(pl.Series("t", [1, 2, 3]), time=None, symbol=None, tz=None, zone="UTC", where="f")


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["2026-06-01 09:30", "2026-06-01T13:30:00Z"], "all say their zone"),
        (["01/02/2026 09:30", "03/04/2026 09:30"], "which number is the month"),
        (["13/14/2026 09:30", "14/13/2026 09:30"], "which number is the month"),
        (["noon", "one"], "'noon'"),
        (["05.01.26 14:30"], "years of four digits"),
        (["1/5/26 9:30 AM"], "years of four digits"),
    ],
)
def test_stamps_that_can_be_read_two_ways_are_refused(texts: list[str], words: str) -> None:
    with pytest.raises(SourceError, match=words):
        read_stamps(pl.Series("t", texts), time=None, symbol=None, tz=None, zone="UTC", where="f")


def test_the_hour_that_comes_twice_is_told_by_order_and_the_one_that_never_comes_is_left_out() -> None:
    texts = ["2025-11-02 00:55", "2025-11-02 01:00", "2025-11-02 01:00", "2025-11-02 01:05", "2026-03-08 02:30"]
    got = read_stamps(pl.Series("t", texts), time=None, symbol=None, tz="America/New_York", zone="UTC", where="f")
    want = [utc("2025-11-02T04:55"), utc("2025-11-02T05:00"), utc("2025-11-02T06:00"), None, None]
    assert got.ts.to_list() == want
    assert any("twice" in line for line in got.remarks)
    assert any("spring" in line for line in got.remarks)
    symbol = pl.Series("symbol", ["A", "B"])
    pair = pl.Series("t", ["2025-11-02 01:00"] * 2)
    alone = read_stamps(pair, time=None, symbol=symbol, tz="America/New_York", zone="UTC", where="f")
    assert alone.ts.null_count() == 2


def test_naive_stamps_say_aloud_which_zone_was_taken() -> None:
    got = read_stamps(pl.Series("t", [datetime(2026, 6, 1, 9, 30)]), time=None, symbol=None, tz=None,
                      zone="America/New_York", where="f")  # fmt: skip
    assert got.ts[0] == utc("2026-06-01T13:30:00")
    assert "America/New_York" in got.remarks[0]


def _numbers(*texts: str) -> list[float | None]:
    return read_numbers(pl.DataFrame({"p": texts}), ["p"], prices=["p"], where="f")["p"].to_list()


def test_numbers_with_signs_of_thousands_decimal_commas_and_words_for_nothing() -> None:
    assert _numbers("1,234.5", "12", "NaN", "", "null") == [1234.5, 12.0, None, None, None]
    assert _numbers("1.234,5", "101,25", "7") == [1234.5, 101.25, 7.0]
    assert _numbers("$1,234.50", "-3.5") == [1234.5, -3.5]
    assert _numbers("1'234.50", "1’234’567.5", "12") == [1234.5, 1234567.5, 12.0]
    assert _numbers("1'234,50", "1 234,5", "1\u00a0234,5") == [1234.5, 1234.5, 1234.5]
    assert _numbers("1 2", "3", "4") == [None, 3.0, 4.0]
    with pytest.raises(SourceError, match="both ways"):
        _numbers("1,234", "2,345")
    with pytest.raises(SourceError, match="one decimal sign"):
        _numbers("1,23", "1,234.5")
