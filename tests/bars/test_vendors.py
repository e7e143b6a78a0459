"""In: small files in the shape each vendor writes. Out: the bars, zones, stamps and scales its own notes give."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from klinepred.bars.delivery import Delivery
from klinepred.bars.sources.files import read_files
from klinepred.bars.sources.vendors import VENDORS, Look, recognise
from klinepred.calendar import Clock
from klinepred.errors import SourceError, UsageError
from tests.bars.made import ROUND, XNYS, utc
from tests.bars.vendor_samples import FILES, XSHG, Bar
from tests.conftest import Typed

IDS = [f"{row[0]}-{row[1]}" for row in FILES]


def _read(path: Path, *, clock: Clock, **options: Any) -> Delivery:
    return next(read_files([path], clock=clock, **{"tz": None, "stamp": None, "symbols": (), **options}))


def _write(tmp_path: Path, name: str, content: str) -> Path:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return path


def _bars(delivery: Delivery) -> list[Bar]:
    frame = delivery.frame.drop_nulls("open").sort("symbol", "ts")
    return [(row[0], f"{row[1]:%Y-%m-%dT%H:%M}", *row[2:]) for row in frame.iter_rows()]


@pytest.mark.parametrize(("vendor", "name", "content", "clock", "bars"), FILES, ids=IDS)
@pytest.mark.parametrize("said", [False, True])
def test_a_file_of_each_vendor_gives_its_bars_recognised_or_named(
    tmp_path: Path, vendor: str, name: str, content: str, clock: Clock, bars: tuple[Bar, ...], said: bool
) -> None:
    delivery = _read(_write(tmp_path, name, content), clock=clock, vendor=vendor if said else "auto")
    for got, want in zip(_bars(delivery), bars, strict=True):
        assert got[:2] == want[:2]
        assert got[2:] == pytest.approx(want[2:], rel=1e-12)
    title = next(one.title for one in VENDORS if one.name == vendor)
    assert delivery.understood is not None
    assert delivery.understood.vendor == title


def _look(name: str, content: str) -> Look:
    table = [tuple(line.replace(";", ",").replace("\t", ",").split(",")) for line in content.splitlines()]
    named = not any(part.replace(".", "").isdigit() for part in table[0][1:])
    return Look(name, table[0] if named else (), tuple(table[1:] if named else table))


@pytest.mark.parametrize(("vendor", "name", "content", "clock", "bars"), FILES, ids=IDS)
def test_what_tells_one_vendor_does_not_tell_another(
    vendor: str, name: str, content: str, clock: Clock, bars: tuple[Bar, ...]
) -> None:
    look = _look(name, content)
    claims = {one.name for one in VENDORS if any(sign.telling and sign.holds(look) for sign in one.signs)}
    allowed = {"mt4"} if name.startswith("DAT_MT") else set()
    assert claims - allowed == {vendor}


GENERIC = (
    "timestamp,open,high,low,close,volume\n2026-01-05 09:35:00,11,13,10,12,600\n2026-01-05 09:30:00,10,12,9,11,500\n"
)


def test_a_form_that_many_write_is_nobodys_until_it_is_said(tmp_path: Path) -> None:
    path = _write(tmp_path, "IBM.csv", GENERIC)
    plain = _read(path, clock=ROUND)
    assert plain.understood is not None
    assert plain.understood.vendor == ""
    assert _bars(plain)[0][1] == "2026-01-05T09:30"
    for vendor in ("alphavantage", "firstrate"):
        said = _read(path, clock=ROUND, vendor=vendor)
        assert _bars(said)[0][1] == "2026-01-05T14:30"
        assert any("America/New_York" in line for line in said.remarks)


@pytest.mark.parametrize("name", ["alphavantage_IBM_5min.csv", "Alpha Vantage IBM.csv", "firstrate_IBM_5min.csv"])
def test_a_form_that_many_write_is_told_by_the_vendors_name_in_the_file_name(tmp_path: Path, name: str) -> None:
    delivery = _read(_write(tmp_path, name, GENERIC), clock=ROUND, symbols=("IBM",))
    assert _bars(delivery)[0][1] == "2026-01-05T14:30"
    assert any("America/New_York" in line for line in delivery.remarks)


def _file(vendor: str) -> tuple[str, str]:
    return next((name, content) for one, name, content, _, _ in FILES if one == vendor)


def test_a_zone_that_is_said_wins_over_the_vendors_and_both_are_named(tmp_path: Path) -> None:
    delivery = _read(_write(tmp_path, *_file("stooq")), clock=ROUND, tz="America/New_York")
    assert _bars(delivery)[0][1] == "2026-01-05T20:30"
    assert any("--tz America/New_York is taken" in line and "Europe/Warsaw" in line for line in delivery.remarks)


def test_a_stamp_that_is_said_wins_over_the_vendors_and_is_named(tmp_path: Path) -> None:
    path = _write(tmp_path, *_file("baostock"))
    delivery = _read(path, clock=XSHG, stamp="open")
    assert _bars(delivery)[0][1] == "2026-01-05T01:35"
    assert any("--stamp open is taken" in line for line in delivery.remarks)
    assert any("stamps bars by their ends" in line for line in _read(path, clock=XSHG).remarks)


@pytest.mark.parametrize(
    ("vendor", "words"),
    [
        ("stooq", "Europe/Warsaw, the one of Stooq"),
        ("histdata", "Etc/GMT+5"),
        ("mt5", "broker's time"),
        ("lean", "divided by 10,000"),
        ("databento", "divided by 1,000,000,000"),
        ("akshare", "by their ends"),
    ],
)
def test_what_the_vendor_decides_is_said(tmp_path: Path, vendor: str, words: str) -> None:
    delivery = _read(_write(tmp_path, *_file(vendor)), clock=XSHG if vendor == "akshare" else XNYS)
    assert any(words in line for line in delivery.remarks)


def test_a_vendor_that_does_not_fit_is_refused_and_the_right_one_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="--vendor binance") as refusal:
        _read(_write(tmp_path, *_file("stooq")), clock=XNYS, vendor="binance")
    assert "opentime" in refusal.value.expected
    assert "as Stooq writes them" in refusal.value.got
    assert "--vendor stooq" in refusal.value.do


def test_an_unknown_vendor_is_a_usage_error_with_the_list(tmp_path: Path, typed: Typed) -> None:
    with pytest.raises(UsageError) as refusal:
        _read(tmp_path, clock=XNYS, vendor="polygn")
    assert refusal.value.do == "write --vendor polygon"
    assert all(one.name in refusal.value.expected for one in VENDORS)
    path = _write(tmp_path, *_file("stooq"))
    code, _, err = typed("ingest", str(path), "-w", str(tmp_path / "w"), "--vendor", "polygn")
    assert code == 2
    assert "do this:  write --vendor polygon" in err


def test_a_tradingview_export_without_volume_is_taken_only_when_that_is_said(tmp_path: Path) -> None:
    content = "time,open,high,low,close\n1767623400,10,12,9,11\n1767623700,11,13,10,12\n"
    path = _write(tmp_path, "FX_EURUSD, 5.csv", content)
    with pytest.raises(SourceError, match="no column for volume") as refusal:
        _read(path, clock=ROUND)
    assert "--vendor tradingview" in refusal.value.do
    delivery = _read(path, clock=ROUND, vendor="tradingview")
    assert delivery.frame["volume"].to_list() == [0.0, 0.0]
    assert any("0 taken" in line for line in delivery.remarks)


DATABENTO = "ts_event,rtype,publisher_id,instrument_id,open,high,low,close,volume\n{}"
ROW = "{},33,2,{},10.5,12.5,9.5,11.5,100\n"


@pytest.mark.parametrize(("second", "refused"), [(38, False), (39, True)])
def test_ids_of_databento_are_no_symbols(tmp_path: Path, second: int, refused: bool) -> None:
    rows = ROW.format(1767623400000000000, 38) + ROW.format(1767623700000000000, second)
    path = _write(tmp_path, "SPY.csv", DATABENTO.format(rows))
    if refused:
        with pytest.raises(SourceError, match="no symbol column"):
            _read(path, clock=XNYS)
    else:
        assert _read(path, clock=XNYS).frame["symbol"].unique().to_list() == ["SPY"]


def test_a_freqtrade_file_is_its_pair(tmp_path: Path) -> None:
    stamps = pl.Series("date", [utc("2026-01-05T14:30"), utc("2026-01-05T14:35")], dtype=pl.Datetime("ms", "UTC"))
    prices: Mapping[str, list[float]] = {"open": [10, 11], "high": [12, 13], "low": [9, 10], "close": [11, 12]}
    path = tmp_path / "freqtrade_ETH_BTC-5m.feather"
    pl.DataFrame({"date": stamps, **prices, "volume": [0.5, 0.6]}).write_ipc(path)
    delivery = _read(path, clock=ROUND)
    assert _bars(delivery)[0] == ("ETH/BTC", "2026-01-05T14:30", 10, 12, 9, 11, 0.5)
    assert delivery.understood is not None
    assert delivery.understood.vendor == "freqtrade"


def test_a_lean_file_under_another_name_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="--vendor lean"):
        _read(_write(tmp_path, "spy.csv", _file("lean")[1]), clock=XNYS, vendor="lean")


def test_futures_of_lean_keep_their_prices_and_their_expiry(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        "20260105_nkd_minute_trade_202603.csv",
        "34200000,40000,40010,39990,40005,10\n34260000,40005,40010,40000,40005,10\n",
    )
    assert _bars(_read(path, clock=XNYS)) == [("NKD_202603", "2026-01-05T14:30", 40000, 40010, 39990, 40005, 20)]


def test_stamps_that_name_two_zones_are_refused(tmp_path: Path) -> None:
    name, content = _file("ib")
    path = _write(tmp_path, name, content.replace("09:35:00 US/Eastern", "09:35:00 US/Central"))
    with pytest.raises(SourceError, match="column 'date'") as refusal:
        _read(path, clock=XNYS)
    assert "US/Central, US/Eastern" in refusal.value.got


def test_recognition_needs_every_first_row() -> None:
    rows = (("20260105 143100", "1", "1", "1", "1", "0"), ("20260105 143200", "1", "1", "1", "1", "5"))
    assert recognise(Look("x.csv", (), rows[:1]), vendor="auto") is not None
    assert recognise(Look("x.csv", (), rows), vendor="auto") is None


def test_the_page_of_vendors_lists_each_with_its_zone_and_stamp() -> None:
    page = (Path(__file__).parents[2] / "docs" / "vendors.md").read_text(encoding="utf-8")
    table = {
        cells[1].strip("` "): cells for line in page.splitlines() if (cells := line.split("|"))[1:2] and "`" in line
    }
    assert list(table)[-len(VENDORS) :] == [vendor.name for vendor in VENDORS]
    for vendor in VENDORS:
        assert (vendor.zone or "") in table[vendor.name][3]
        assert ("ends" if vendor.stamp == "close" else "opens") in table[vendor.name][4]
