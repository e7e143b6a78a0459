"""In: Parquet and Arrow files with columns of many types. Out: the same bars each time, or one refusal."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars.delivery import Delivery
from klinepred.bars.sources.files import read_files
from klinepred.errors import SourceError
from tests.bars.made import XNYS, utc, walk
from tests.conftest import Typed

STAMPS = [utc(f"2026-06-01T13:{minute}") for minute in (30, 35, 40)]
BARS = pl.DataFrame(
    {
        "symbol": ["AAA"] * 3,
        "ts": STAMPS,
        "open": [1.0, 1.5, 1.25],
        "high": [2.0, 2.5, 2.25],
        "low": [0.5, 0.75, 0.25],
        "close": [1.5, 1.25, 1.0],
        "volume": [100.0, 200.0, 300.0],
    }
)
PRICES = ("open", "high", "low", "close")


def _read(tmp_path: Path, frame: pl.DataFrame, name: str = "AAA.parquet") -> Delivery:
    path = tmp_path / name
    if name.endswith("parquet"):
        frame.write_parquet(path)
    elif name.endswith("stream"):
        frame.write_ipc_stream(path)
    else:
        frame.write_ipc(path)
    (delivery,) = read_files([path], clock=XNYS, tz=None, stamp="open", symbols=())
    return delivery


@pytest.mark.parametrize(
    "name", ["AAA.parquet", "AAA.feather", "AAA.arrow", "AAA.stream", "AAA[1].parquet", "A=B*.arrow"]
)
@pytest.mark.parametrize(
    "cast",
    [
        {},
        {"symbol": pl.Categorical()},
        {"symbol": pl.Enum(["AAA"])},
        {"symbol": pl.Binary()},
        dict.fromkeys(PRICES, pl.Float32()),
        dict.fromkeys(PRICES, pl.Decimal(18, 4)),
        {name: pl.String() for name in (*PRICES, "volume")},
        {"volume": pl.UInt64()},
        {"ts": pl.Int64()},
        {"ts": pl.Datetime("ns", "UTC")},
    ],
)
def test_columns_of_each_type_give_the_same_bars(tmp_path: Path, name: str, cast: dict[str, pl.DataType]) -> None:
    frame = BARS.cast(cast)  # type: ignore[arg-type]
    assert _read(tmp_path, frame, name).frame.equals(BARS)


def test_prices_kept_as_categories_of_text_are_numbers(tmp_path: Path) -> None:
    frame = BARS.with_columns(pl.col(PRICES).cast(pl.String).cast(pl.Categorical))
    assert _read(tmp_path, frame).frame.equals(BARS)


@pytest.mark.parametrize(
    "numbers",
    [
        pl.Series("code", [5930] * 3),
        pl.Series("code", [5930.0] * 3),
        pl.Series("code", [Decimal(5930)] * 3),
    ],
)
def test_symbols_that_are_numbers_are_said_to_have_lost_their_zeros(tmp_path: Path, numbers: pl.Series) -> None:
    got = _read(tmp_path, BARS.drop("symbol").with_columns(numbers))
    assert got.frame["symbol"].to_list() == ["5930"] * 3
    assert any("(5930): zeros in front may be lost" in line for line in got.remarks)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pl.Series("symbol", [True] * 3), "symbols as text"),
        (pl.Series("symbol", [1.5] * 3), "symbols as text"),
        (pl.Series("close", [[1.0]] * 3), "'close' of List"),
        (pl.Series("open", [{"bid": 1.0}] * 3), "'open' of Struct"),
        (pl.Series("high", [True] * 3), "'high' of Boolean"),
        (pl.Series("low", STAMPS), "'low' of Datetime"),
        (pl.Series("ts", [True] * 3), "time stamps as text"),
    ],
)
def test_columns_of_other_types_are_refused_by_name(
    tmp_path: Path, typed: Typed, column: pl.Series, words: str
) -> None:
    with pytest.raises(SourceError) as refusal:
        _read(tmp_path, BARS.with_columns(column))
    assert words in str(refusal.value)
    code, out, err = typed("ingest", str(tmp_path / "AAA.parquet"), "-w", str(tmp_path / "w"))
    assert (code, out, err.count("do this:")) == (1, "", 1)


def test_nested_columns_that_are_not_needed_do_not_matter(tmp_path: Path) -> None:
    assert _read(tmp_path, BARS.with_columns(notes=pl.Series([["x"]] * 3))).frame.equals(BARS)


@pytest.mark.parametrize("keep", [6, 40, 300, -20])
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_damaged_arrow_file_is_one_message(tmp_path: Path, keep: int, kind: str) -> None:
    path = tmp_path / "AAA.arrow"
    frame = walk(["AAA"], days=1)
    frame.write_ipc(path) if kind == "file" else frame.write_ipc_stream(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SourceError, match="whole Arrow file"):
        list(read_files([path], clock=XNYS, tz=None, stamp="open", symbols=()))


def test_feather_of_version_1_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "AAA.feather"
    path.write_bytes(b"FEA1" + bytes(100))
    with pytest.raises(SourceError, match="version 1"):
        list(read_files([path], clock=XNYS, tz=None, stamp="open", symbols=()))


def test_stamps_of_impossible_years_are_no_stamps_and_stop_nothing(tmp_path: Path) -> None:
    wild = pl.Series("ts", [-(10**18), 10**18, 1780320600000000]).cast(pl.Datetime("us", "UTC"))
    for ts in (wild, wild.dt.replace_time_zone(None)):
        got = _read(tmp_path, BARS.with_columns(ts), "AAA.arrow").frame["ts"]
        assert got.null_count() == 2
        assert got.drop_nulls().dt.year().to_list() == [2026]
