"""In: files of one symbol that only together show another instrument. Out: nothing stored is replaced by them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from klinepred.bars.ingest import ingest
from klinepred.bars.store import scan_bars, store_version
from klinepred.calendar import Clock, grid
from klinepred.paths import Workspace
from klinepred.settings import DataSettings, SimulateSettings

NOW = datetime(2026, 7, 1, tzinfo=UTC)
DAYS = (8, 9, 10, 11)  # June 2026, Monday to Thursday


def day(number: int, *, factor: np.ndarray | float = 1.0, symbol: str = "SPY") -> pl.DataFrame:
    stamps = grid(Clock("XNYS"), datetime(2026, 6, number, tzinfo=UTC), datetime(2026, 6, number + 1, tzinfo=UTC))["ts"]
    close = (100.0 + 0.01 * np.arange(stamps.len()) + number) * factor
    return pl.DataFrame({"symbol": symbol, "ts": stamps, "open": close, "high": close, "low": close, "close": close}
                        ).with_columns(volume=1000.0)  # fmt: skip


def files(folder: Path, frames: list[pl.DataFrame]) -> DataSettings:
    folder.mkdir()
    for number, frame in enumerate(frames):
        frame.write_parquet(folder / f"{number}.parquet")
    return DataSettings(source="files", paths=(str(folder),))


def noise(size: float, seed: int) -> np.ndarray:
    return np.asarray(1.0 + size * np.random.default_rng(seed).uniform(0.8, 1.2, 78))


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    space = Workspace(tmp_path / "space")
    ingest(files(tmp_path / "first", [day(n) for n in DAYS]), space, now=NOW)
    return space


def test_another_instrument_over_several_files_replaces_nothing(space: Workspace, tmp_path: Path) -> None:
    before, version = scan_bars(space).collect(), store_version(space)
    sizes = (0.02, 0.02, 0.2, 0.2)
    wrong = [day(n, factor=noise(size, n)) for n, size in zip(DAYS, sizes, strict=True)]
    report = ingest(files(tmp_path / "b", wrong), space, now=NOW)
    (row,) = report.symbols
    assert (row.status, row.new, row.revised) == ("rejected", 0, 0)
    assert "nothing of this symbol was stored" in row.message
    assert report.exit_code == 1
    assert scan_bars(space).collect().equals(before)
    assert store_version(space) == version


def test_another_seed_of_the_simulated_market_replaces_nothing(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    market = SimulateSettings(symbols=3, start=date(2026, 2, 2), end=date(2026, 5, 29))
    ingest(DataSettings(source="simulate", simulate=market), space, now=NOW)
    before = scan_bars(space).collect()
    report = ingest(DataSettings(source="simulate", simulate=market.model_copy(update={"seed": 8})), space, now=NOW)
    assert {row.status for row in report.symbols} == {"rejected"}
    assert sum(row.new + row.revised for row in report.symbols) == 0
    assert scan_bars(space).collect().equals(before)


def test_real_revisions_over_several_files_are_taken_over_and_counted_once(space: Workspace, tmp_path: Path) -> None:
    late = [day(n) for n in DAYS]
    for number in (0, 2):
        late[number] = (
            late[number]
            .with_columns(close=pl.when(pl.int_range(pl.len()) == 5).then(pl.col("close") * 1.004).otherwise("close"))
            .with_columns(high=pl.max_horizontal("high", "close"))
        )
    late.append(late[2])  # the same day once more
    late.append(day(12))
    report = ingest(files(tmp_path / "b", late), space, now=NOW)
    (row,) = report.symbols
    assert (row.status, row.new, row.revised, report.exit_code) == ("ok", 78, 2, 0)
    assert row.received == row.new + row.revised + row.unchanged + row.duplicates
    stored = scan_bars(space).collect()
    assert stored.height == 5 * 78
    want = pl.concat([*late[:4], late[5]]).sort("ts")["close"]
    assert stored["close"].to_list() == want.to_list()


def test_what_came_before_the_doubt_is_named_with_the_way_back(space: Workspace, tmp_path: Path) -> None:
    version = store_version(space)
    report = ingest(files(tmp_path / "b", [day(12), day(8, factor=10.0)]), space, now=NOW)
    (row,) = report.symbols
    assert (row.status, row.new) == ("rejected", 78)
    assert "10 times" in row.message
    assert "78 bars of it that came before in this ingest are stored" in row.message
    assert f"--as-of {version}" in row.message
    assert scan_bars(space, as_of=version).collect().height == 4 * 78


def test_a_refused_symbol_stays_refused_and_others_go_on(space: Workspace, tmp_path: Path) -> None:
    wrong = [day(8, factor=10.0), day(15), day(15, symbol="QQQ")]
    report = ingest(files(tmp_path / "b", wrong), space, now=NOW)
    assert [(row.symbol, row.status, row.new) for row in report.symbols] == [("QQQ", "ok", 78), ("SPY", "rejected", 0)]
    assert report.exit_code == 3
