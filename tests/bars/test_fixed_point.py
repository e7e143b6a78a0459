"""In: prices as whole numbers of a billionth or a ten-thousandth. Out: the very floats that decimals are read as."""

from __future__ import annotations

import zipfile
from pathlib import Path

import polars as pl

from klinepred.bars.ingest import ingest
from klinepred.bars.store import scan_bars
from klinepred.paths import Workspace
from tests.bars.made import NOW, from_files, walk

CENTS = list(range(4_000, 12_000, 7))


def _bars() -> pl.DataFrame:
    table = walk(["SPY"], days=20).head(len(CENTS))
    price = pl.Series("close", [cents / 100 for cents in CENTS[: table.height]])
    return table.with_columns(open=price, high=price, low=price, close=price)


def test_databento_in_fixed_point_equals_databento_in_decimals(tmp_path: Path) -> None:
    table = _bars()
    nanos = table["ts"].dt.epoch("ns")
    lines = ["ts_event,rtype,publisher_id,instrument_id,open,high,low,close,volume,symbol"]
    for stamp, price, volume in zip(nanos, CENTS, table["volume"], strict=False):
        fixed = price * 10_000_000
        lines.append(f"{stamp},33,1,15144,{fixed},{fixed},{fixed},{fixed},{int(volume)},SPY")
    (tmp_path / "fixed.csv").write_text("\n".join(lines))
    table.write_csv(tmp_path / "decimal.csv")
    space = Workspace(tmp_path / "w")
    ingest(from_files(tmp_path / "fixed.csv"), space, now=NOW)
    assert scan_bars(space).collect()["close"].to_list() == table["close"].to_list()
    again = ingest(from_files(tmp_path / "decimal.csv"), space, now=NOW)
    assert (again.symbols[0].revised, again.symbols[0].unchanged) == (0, table.height)


def test_lean_in_ten_thousandths_is_exact(tmp_path: Path) -> None:
    lines = [
        f"{(34_200 + 60 * minute) * 1000},{c * 100},{c * 100},{c * 100},{c * 100},10"
        for minute, c in enumerate(CENTS[:390])
    ]
    with zipfile.ZipFile(tmp_path / "20260601_trade.zip", "w") as packed:
        packed.writestr("20260601_spy_minute_trade.csv", "\n".join(lines))
    space = Workspace(tmp_path / "w")
    ingest(from_files(tmp_path / "20260601_trade.zip"), space, now=NOW)
    assert scan_bars(space).collect()["close"].to_list() == [CENTS[last] / 100 for last in range(4, 390, 5)]
