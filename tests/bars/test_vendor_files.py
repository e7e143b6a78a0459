"""In: public vendor files and bug reports of `../shared`. Out: the bars, stamps, closes, volumes their notes give."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars.ingest import ingest
from klinepred.bars.report import IngestReport
from klinepred.bars.store import scan_bars
from klinepred.paths import Workspace
from tests.bars.made import NOW, SHARED, from_files, utc

VENDORS, CASES = SHARED / "data" / "vendors", SHARED / "cases"
pytestmark = pytest.mark.skipif(not VENDORS.is_dir(), reason=f"no vendor files at {VENDORS}")

NEW_YORK, SHANGHAI = "America/New_York", "Asia/Shanghai"
ROUND = {"calendar": "24/7"}
FILES: list[tuple[str, dict[str, str], int, str, float, str, float, float]] = [
    (
        "yfinance_close_first_AAPL_5m.csv",
        {},
        4521,
        "2025-12-23T14:30",
        270.17,
        "2026-03-20T19:55",
        248.19,
        1_865_822_086,
    ),
    ("yahoo_extended_AAPL_5m.csv", {}, 2404, "2025-06-04T13:30", 203.03, "2025-07-21T15:15", 213.38, 1_338_554_761),
    (
        "naive_newyork_SPY_5m.csv",
        {"tz": NEW_YORK},
        16207,
        "2025-05-12T13:30",
        579.23,
        "2026-03-12T14:30",
        667.73,
        10_927_391_980,
    ),
    (
        "naive_newyork_SPY_5m.csv",
        {"hours": "extended"},
        17463,
        "2025-05-12T13:30",
        579.23,
        "2026-03-12T14:30",
        667.73,
        10_929_069_704,
    ),
    ("bom_SPY_1m.csv", {"tz": NEW_YORK}, 312, "2020-12-15T14:30", 367.43, "2020-12-18T20:55", 369.13, 151_158_621),
    (
        "ashare_600977_5m_bar_end.csv",
        {"calendar": "XSHG", "stamp": "close"},
        2500,
        "2024-06-18T03:10",
        11.27,
        "2024-08-29T03:25",
        9.88,
        3_175_911,
    ),
    (
        "hikyuu_SSE_1m.csv",
        {"calendar": "XSHG", "stamp": "close", "tz": SHANGHAI},
        603,
        "2017-03-03T05:20",
        3213.03,
        "2017-03-22T02:00",
        3254.42,
        26_007_544_180,
    ),
    (
        "binance_um_SOLUSDT-5m-2025-10.csv",
        ROUND,
        2000,
        "2025-10-01T00:00",
        209.25,
        "2025-10-07T22:35",
        222.30,
        164_829_426.8,
    ),
    (
        "binance_um_ALGOUSDT-1m-2024-02.csv",
        ROUND,
        600,
        "2024-02-01T00:00",
        0.16,
        "2024-02-03T01:55",
        0.1618,
        335_819_342.7,
    ),
    ("mt5_XAUUSD_M5.csv", ROUND, 2999, "2025-01-02T01:00", 2625.0, "2025-01-16T20:50", 2716.1, 2_341_863),
    ("mt4_headerless_EURUSD_M5.csv", ROUND, 5000, "2020-02-17T00:50", 1.08356, "2020-03-11T08:25", 1.13248, 3_362_748),
    (
        "backtrader_1m_short_header.txt",
        {**ROUND, "stamp": "close", "tz": "Europe/Berlin"},
        631,
        "2006-01-02T08:00",
        3598.0,
        "2006-01-06T10:30",
        3671.0,
        1_720_823,
    ),
    (
        "freqtrade_ETH_BTC-5m.feather",
        ROUND,
        5760,
        "2018-01-10T04:55",
        0.0994766,
        "2018-01-30T04:50",
        0.104411,
        1_377_404.948,
    ),
    (
        "freqtrade_ADA_BTC-5m.feather",
        ROUND,
        5720,
        "2018-01-10T04:55",
        5.29e-05,
        "2018-01-30T04:50",
        5.144e-05,
        1_611_180_279,
    ),
]


def _take(
    tmp_path: Path, path: Path, now: datetime = NOW, options: Mapping[str, str] | None = None
) -> tuple[IngestReport, pl.DataFrame]:
    space = Workspace(tmp_path)
    report = ingest(from_files(path, **(options or {})), space, now=now)
    return report, scan_bars(space).collect() if report.version is not None else pl.DataFrame()


@pytest.mark.parametrize(
    ("name", "options", "bars", "first", "first_close", "last", "last_close", "volume"),
    FILES,
    ids=[f"{row[0]}-{number}" for number, row in enumerate(FILES)],
)
def test_each_vendor_file_gives_its_bars(
    tmp_path: Path,
    name: str,
    options: dict[str, str],
    bars: int,
    first: str,
    first_close: float,
    last: str,
    last_close: float,
    volume: float,
) -> None:
    report, table = _take(tmp_path, VENDORS / name, options=options)
    assert report.exit_code == 0
    assert table.height == bars
    assert (table["ts"][0], table["ts"][-1]) == (utc(first), utc(last))
    assert table["close"][0] == pytest.approx(first_close, rel=1e-4)
    assert table["close"][-1] == pytest.approx(last_close, rel=1e-4)
    assert float(table["volume"].sum()) == pytest.approx(volume, rel=1e-8)


@pytest.mark.parametrize("month", ["2024-12", "2025-01"])
def test_hourly_bars_are_refused_by_their_spacing(tmp_path: Path, month: str) -> None:
    report, _ = _take(tmp_path, VENDORS / f"binance_spot_BTCUSDT-1h-{month}.csv", options=ROUND)
    assert (report.exit_code, report.version) == (1, None)
    assert "1-hour" in report.symbols[0].message


def test_closing_prints_and_lunch_rows_are_set_aside(tmp_path: Path) -> None:
    report, _ = _take(tmp_path / "a", VENDORS / "bom_SPY_1m.csv")
    assert [row.ts.hour if row.ts else None for row in report.symbols[0].quarantined] == [21] * 4
    report, _ = _take(tmp_path / "b", VENDORS / "hikyuu_SSE_1m.csv", options={"calendar": "XSHG", "stamp": "close"})
    assert len(report.symbols[0].quarantined) == 12


def test_bar_ends_taken_for_opens_are_doubted_aloud(tmp_path: Path) -> None:
    report, _ = _take(tmp_path, VENDORS / "ashare_600977_5m_bar_end.csv", options={"calendar": "XSHG"})
    assert any("--stamp close?" in line for line in report.remarks)
    report, _ = _take(tmp_path / "b", VENDORS / "yfinance_close_first_AAPL_5m.csv", options={"stamp": "close"})
    assert any("--stamp open?" in line for line in report.remarks)


def test_the_two_public_collections(tmp_path: Path) -> None:
    report, table = _take(tmp_path, SHARED / "data" / "us8_yahoo_2025-06_08_5m.parquet")
    assert table.height == 37_148
    assert sum(len(row.quarantined) for row in report.symbols) == 288
    assert sum(row.missing or 0 for row in report.symbols) == 4


def test_case_03_two_level_headers_are_read_by_name(tmp_path: Path) -> None:
    folder = CASES / "03-three-header-rows"
    _, one = _take(tmp_path / "a", folder / "one_symbol_wide.csv")
    assert one.row(0)[:7] == ("AAPX", utc("2026-06-10T13:30"), 150.03, 150.18, 150.0, 150.14, 12161.0)
    assert one.height == 4
    _, two = _take(tmp_path / "b", folder / "two_symbols_wide.csv")
    assert two.group_by("symbol").len().sort("symbol").rows() == [("AAPX", 4), ("MSFX", 4)]
    assert two.filter(pl.col("symbol") == "MSFX")["close"][0] == 87.96
    assert two.filter(pl.col("symbol") == "AAPX").equals(one)


def test_case_08_a_half_day_has_42_bars_and_none_missing(tmp_path: Path) -> None:
    report, table = _take(tmp_path, CASES / "08-half-day-extra-bar" / "AAPX_2026-11-27.csv")
    row = report.symbols[0]
    assert (row.new, row.expected, row.missing, len(row.quarantined)) == (42, 42, 0, 1)
    assert table["ts"][-1] == utc("2026-11-27T17:55")


def test_case_10_zero_volume_bars_are_kept_and_counted(tmp_path: Path) -> None:
    report, _ = _take(tmp_path, CASES / "10-zero-volume-moving-price" / "BTX-USD.csv", options=ROUND)
    assert (report.symbols[0].new, report.symbols[0].zero_volume) == (12, 5)


def test_case_12_rows_without_prices_are_missing(tmp_path: Path) -> None:
    report, table = _take(tmp_path, CASES / "12-nan-rows" / "NANX.csv")
    row = report.symbols[0]
    assert (row.new, row.missing, row.empty, len(row.quarantined)) == (7, 3, 2, 1)
    assert table["close"].is_finite().all()


def test_case_13_the_unit_of_a_stamp_is_decided_one_by_one(tmp_path: Path) -> None:
    report, table = _take(tmp_path, CASES / "13-binance-microseconds" / "BTXUSDT-5m.csv", options=ROUND)
    assert (table.height, report.symbols[0].missing) == (6, 0)
    assert (table["ts"][0], table["ts"][-1]) == (utc("2024-12-31T23:45"), utc("2025-01-01T00:10"))
    assert (table["close"][0], table["close"][-1], table["volume"][0]) == (94048.34, 94040.73, 14.224)


def test_case_15_exports_of_spreadsheets(tmp_path: Path) -> None:
    folder = CASES / "15-bom-crlf-decimal-comma"
    _, one = _take(tmp_path / "a", folder / "excel_bom_crlf.csv", options={"tz": "UTC"})
    _, two = _take(tmp_path / "b", folder / "semicolon_comma.csv", options={"tz": "UTC"})
    assert one.row(0)[1:7] == (utc("2026-01-05T14:30"), 101.0, 101.05, 100.91, 100.94, 9837.0)
    assert one.height == 5
    assert two.drop("symbol").equals(one.drop("symbol"))


def test_case_17_symbols_stay_text(tmp_path: Path) -> None:
    folder = CASES / "17-symbols-that-look-like-values"
    _, table = _take(tmp_path, folder)
    assert table.group_by("symbol").len().sort("symbol").rows() == [
        ("000660", 2),
        ("005930", 2),
        ("INF", 2),
        ("NA", 2),
        ("NAN", 2),
        ("TRUE", 2),
    ]


def test_case_19_both_sides_of_a_clock_change(tmp_path: Path) -> None:
    folder = CASES / "19-session-open-across-dst"
    _, one = _take(tmp_path / "a", folder / "naive_newyork.csv", options={"tz": NEW_YORK})
    _, two = _take(tmp_path / "b", folder / "with_offset.csv")
    assert one.equals(two)
    assert (one["ts"][0], one["ts"][6]) == (utc("2026-03-06T14:30"), utc("2026-03-09T13:30"))


def test_case_21_minutes_are_added_up_and_the_unfinished_bar_held_back(tmp_path: Path) -> None:
    path = CASES / "21-one-minute-to-five" / "RSX_1m.csv"
    report, table = _take(tmp_path / "a", path, now=utc("2026-06-03T14:12"))
    assert table.select("ts", "open", "high", "low", "close", "volume").rows() == [
        (utc("2026-06-03T14:00"), 88.0, 88.04, 87.93, 87.95, 3326.0),
        (utc("2026-06-03T14:05"), 87.94, 87.99, 87.78, 87.95, 5186.0),
    ]
    assert report.symbols[0].held == 1
    report, table = _take(tmp_path / "b", path)
    assert table.height == 3
    assert any("2 of 5" in line for line in report.remarks)


def test_case_23_the_closing_print_is_left_out(tmp_path: Path) -> None:
    report, table = _take(tmp_path, CASES / "23-closing-print-at-16h00" / "AUCX.csv")
    assert table.height == 7
    assert report.symbols[0].quarantined[0].ts == utc("2026-06-03T20:00")
