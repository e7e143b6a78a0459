"""In: small files in many forms. Out: the same bars each time, or one refusal that names what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars.delivery import Delivery
from klinepred.bars.ingest import ingest
from klinepred.bars.sources.columns import find_layout
from klinepred.bars.sources.filenames import symbol_of_file
from klinepred.bars.sources.files import find_files, read_files
from klinepred.calendar import Clock
from klinepred.errors import SourceError, UsageError
from klinepred.paths import Workspace
from klinepred.schema import BAR_SCHEMA
from tests.bars.made import NOW, XNYS, from_files, walk
from tests.conftest import Typed

HEADER = "symbol,datetime,open,high,low,close,volume\n"
LINE = "A,2026-06-01T13:{:02d}:00Z,1,2,0.5,1.5,100\n"
GOOD = HEADER + "".join(LINE.format(minute) for minute in (30, 35, 40))


def _read(
    path: Path, *, clock: Clock = XNYS, tz: str | None = None, symbols: tuple[str, ...] = (), ends: bool = False
) -> Delivery:
    stamp = "close" if ends else "open"
    return next(read_files([path], clock=clock, tz=tz, stamp=stamp, symbols=symbols))  # type: ignore[arg-type]


def _text(tmp_path: Path, content: str | bytes, name: str = "A_5m.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    return _read(_text(tmp_path_factory.mktemp("good"), GOOD)).frame


@pytest.mark.parametrize(
    "content",
    [
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace(",", "\t"),
        GOOD.replace(",", ";"),
        GOOD.replace(",", "|"),
        GOOD.replace(HEADER, "Ticker,<DATETIME>,1. open,HIGH, low,Close,Vol.\n"),
        'symbol,datetime,open,high,low,close,volume\n"A","2026-06-01T13:30:00Z","1","2","0.5","1.5","100"\n'
        + "".join(LINE.format(minute) for minute in (35, 40)),
        "volume,close,low,high,open,datetime,symbol\n"
        + "".join(f"100,1.5,0.5,2,1,2026-06-01 09:{minute}:00-04:00,A\n" for minute in (30, 35, 40)),
        "symbol;datetime;open;high;low;close;volume\n"
        + "".join(f"A;2026-06-01T13:{minute}:00Z;1,00;2,00;0,50;1,50;100\n" for minute in (30, 35, 40)),
        "symbol,date,time,open,high,low,close,volume\n"
        + "".join(f"A,20260601,09{minute}00,1,2,0.5,1.5,100\n" for minute in (30, 35, 40)),
        "symbol,ts,open,high,low,close,volume\n"
        + "".join(f"A,{1780320600 + 300 * step},1,2,0.5,1.5,100\n" for step in range(3)),
        "date,open,high,low,close,volume,adj close\n"
        + "".join(f"06/01/2026 9:{m} AM,1,2,0.5,1.5,100,3\n" for m in (30, 35))
        + "06/01/2026 9:40 AM,1,2,0.5,1.5,100,3\n06/15/2026 9:30 AM,,,,,,\n",
    ],
)
def test_one_table_in_many_forms_reads_the_same(tmp_path: Path, good: pl.DataFrame, content: str) -> None:
    delivery = _read(_text(tmp_path, content))
    assert delivery.frame.drop_nulls("open").equals(good)


@pytest.mark.parametrize("name", ["bars.parquet", "bars.feather"])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_binary_files_keep_stamps_of_any_unit(tmp_path: Path, name: str, unit: str) -> None:
    frame = walk(["A", "B"], days=1)
    given = frame.with_columns(
        pl.col("ts").dt.convert_time_zone("America/New_York").dt.cast_time_unit(unit),  # type: ignore[arg-type]
        pl.col("volume").cast(pl.Int64),
        pl.col("symbol").cast(pl.Categorical),
    )
    path = tmp_path / name
    given.write_parquet(path) if name.endswith("parquet") else given.write_ipc(path)
    assert _read(path).frame.equals(frame)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "empty file"),
        (HEADER, "none"),
        (GOOD.replace("open", "opne"), "is 'opne' meant to be open"),
        (GOOD.replace("volume", "Volme"), "is 'Volme' meant to be volume"),
        (GOOD.replace("datetime", "dattime"), "is 'dattime' meant to be time stamp"),
        (GOOD.replace("close", "open"), "no column for close"),
        (GOOD.replace("1.5,100", "1.5,100,7"), "rows of 8 fields"),
        (GOOD + "A,2026-06-01T13:45:00Z,1,2,0.5,1.5,100,7,8\n", "rows of 7 fields"),
        (GOOD.replace("1.5,", "abc,"), "'abc'"),
        (GOOD.replace("2026-06-01T", "yesterday "), "yesterday"),
        (b"\xff\xfe" + GOOD.encode("utf-16-le") + b"\x00", "in UTF-16 to its end"),
        (GOOD.encode() + b"\x00\x01\x02", "none of these"),
        (GOOD.encode().replace(b"A,", b"\xc4\xd0,"), "another encoding"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        ("what is this\n", "1 columns"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_message(tmp_path: Path, content: str | bytes, words: str) -> None:
    with pytest.raises(SourceError) as refusal:
        _read(_text(tmp_path, content))
    assert words in str(refusal.value)


@pytest.mark.parametrize("keep", [0, 5, 700, -9])
def test_a_damaged_parquet_file_is_one_message(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "bars.parquet"
    walk(["A"]).write_parquet(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SourceError, match="whole Parquet file"):
        _read(path)


def test_of_several_files_the_unreadable_one_is_named_and_the_others_read(tmp_path: Path) -> None:
    _text(tmp_path, GOOD, "a.csv")
    _text(tmp_path, "", "b.csv")
    first, second = read_files([tmp_path], clock=XNYS, tz=None, stamp="open", symbols=())
    assert first.frame.height == 3
    assert second.failures["b.csv"].status == "failed"
    assert "empty file" in second.failures["b.csv"].message


def test_folders_and_patterns_are_all_their_files_once(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    names = ["a.csv", "b.parquet", "deep/c.tsv"]
    for name in [*names, "notes.md", ".hidden.csv"]:
        _text(tmp_path, GOOD, name)
    assert find_files([tmp_path]) == [tmp_path / name for name in names]
    assert find_files([tmp_path / "*.csv", tmp_path / "a.csv"]) == [tmp_path / "a.csv"]
    with pytest.raises(UsageError, match="no such file"):
        find_files([tmp_path / "*.feather"])
    (tmp_path / "none").mkdir()
    with pytest.raises(UsageError, match="in this folder"):
        find_files([tmp_path / "none"])


def test_symbols_pick_rows_and_absent_ones_are_named(tmp_path: Path) -> None:
    delivery = _read(_text(tmp_path, GOOD + GOOD.replace(HEADER, "").replace("A,", "B,")), symbols=("B", "C"))
    assert delivery.frame["symbol"].unique().to_list() == ["B"]
    assert delivery.failures["C"].status == "unknown-symbol"


@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        ("AAPL_5m.csv", "AAPL"),
        ("AAPL.csv", "AAPL"),
        ("aapl_5min_2025-06-04.csv", "aapl"),
        ("SOLUSDT-5m-2025-10.csv", "SOLUSDT"),
        ("binance_um_SOLUSDT-5m-2025-10.csv", "SOLUSDT"),
        ("ETH_BTC-5m.feather", "ETH/BTC"),
        ("BTC_USDT_USDT-5m-futures.feather", "BTC/USDT:USDT"),
        ("BTC-USD.csv", "BTC-USD"),
        ("BRK.B.csv", "BRK.B"),
        ("brk-b_5m.csv", "brk-b"),
        ("^GSPC.csv", "^GSPC"),
        ("EURUSD=X_5m.csv", "EURUSD=X"),
        ("mt5_XAUUSD_M5.csv", "XAUUSD"),
        ("600977_5m.csv", "600977"),
        ("SPOT_5m.csv", "SPOT"),
        ("AAPX_2026-11-27.csv", "AAPX"),
        ("BINANCE_BTCUSDT, 5.csv", "BTCUSDT"),
        ("FX_EURUSD, 5_6f1a7.csv", "EURUSD"),
        ("spy_5m.csv", "spy"),
        ("spy.csv", "spy"),
        ("btcusdt_1m_2026-01.csv", "btcusdt"),
        ("SPY.us.csv", "SPY.us"),
        ("aapl.us.txt", "aapl.us"),
        ("eurusd-m5.csv", "eurusd"),
        ("SPY (2).csv", "SPY"),
        ("SPY_20260105_093000.csv", "SPY"),
        ("600977_20240618.csv", "600977"),
        ("EURUSD_M5_202501020000_202501162355.csv", "EURUSD"),
        ("DAT_NT_EURUSD_M1_202601.csv", "EURUSD"),
        ("ES 03-26.Last.txt", "ES 03-26"),
        ("SPY_full_5min_adjsplitdiv.txt", "SPY"),
        ("平安银行.csv", "平安银行"),
    ],
)
def test_the_symbol_in_a_file_name(name: str, symbol: str) -> None:
    assert symbol_of_file(Path(name)) == (symbol, True)


@pytest.mark.parametrize(
    "stem",
    ["semicolon_comma", "excel_bom", "my_export_5m", "data1", "Prices", "notebook", "backtrader_1m_short_header"],
)
def test_words_that_are_no_symbol_are_taken_whole_and_said(tmp_path: Path, stem: str) -> None:
    assert symbol_of_file(Path(f"{stem}.csv")) == (stem, False)
    path = tmp_path / f"{stem}.csv"
    path.write_text("ts,open,high,low,close,volume\n2026-06-01T13:30:00Z,1,2,1,2,5\n")
    report = ingest(from_files(path), Workspace(tmp_path / "w"), now=NOW)
    assert [row.symbol for row in report.symbols] == [stem]
    assert any("--symbols NAME" in line for line in report.remarks)


@pytest.mark.parametrize(
    "name",
    [
        "5m.csv",
        "2025-10.csv",
        "SPY_QQQ_5m.csv",
        "20260105_093000.csv",
    ],
)
def test_a_file_name_that_does_not_say_one_symbol_is_refused(name: str) -> None:
    with pytest.raises(SourceError, match="--symbols"):
        symbol_of_file(Path(name))


def test_a_layout_goes_by_names_and_a_doubled_column_is_refused() -> None:
    names = ["Date", "Close", "High", "Low", "Open", "Tick Volume", "Symbol"]
    layout = find_layout(names, where="f", sample={})
    assert (layout.stamp, layout.open, layout.close, layout.volumes) == ("Date", "Open", "Close", ("Tick Volume",))
    with pytest.raises(SourceError, match="one column for open"):
        find_layout([*names, "OPEN"], where="f", sample={})


def test_the_schema_of_a_delivery_is_that_of_bars(tmp_path: Path) -> None:
    schema: Mapping[str, pl.DataType] = _read(_text(tmp_path, GOOD)).frame.schema
    assert dict(schema) == BAR_SCHEMA


def test_a_file_that_gives_no_row_is_an_error_in_three_parts(tmp_path: Path, typed: Typed) -> None:
    file = tmp_path / "head.parquet"
    pl.DataFrame(schema=BAR_SCHEMA).write_parquet(file)
    code, out, err = typed("ingest", str(file), "-w", str(tmp_path / "w"))
    assert (code, out) == (1, "")
    assert "at least one row" in err
    assert err.count("do this:") == 1


def test_a_range_that_leaves_no_row_is_an_error_that_names_it(tmp_path: Path, typed: Typed) -> None:
    file = tmp_path / "A.csv"
    file.write_text("ts,open,high,low,close,volume\n2026-06-10T13:30:00Z,1,1,1,1,1\n2026-06-10T13:35:00Z,1,1,1,1,1\n")
    code, _, err = typed("ingest", str(file), "-w", str(tmp_path / "w"), "--start", "2026-06-11")
    assert code == 1
    assert "from 2026-06-11 to the last" in err


def test_folders_give_packed_files_too_and_nothing_hidden(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    names = ["a.csv", "b.csv.gz", "c.zip", "d.csv.zst", "e.json", "f.jsonl", "g.ndjson"]
    for name in [*names, "._a.csv", "__MACOSX/x.csv", ".git/x.csv", "notes.md"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(GOOD)
    assert find_files([folder]) == [folder / name for name in names]
