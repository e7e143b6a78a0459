"""In: stores with odd symbols and several calendars. Out: files that, taken in again, give the same store."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from klinepred.bars import export
from klinepred.bars.export import Form, export_bars
from klinepred.bars.ingest import ingest
from klinepred.bars.store import list_symbols, scan_bars
from klinepred.errors import StoreError, UsageError
from klinepred.paths import Workspace
from tests.bars.made import NOW, ROUND, XNYS, from_files, utc, walk
from tests.conftest import Typed

ODD = [
    "CON",
    "NUL",
    "BTC/USDT",
    "^GSPC",
    "EURUSD=X",
    "BRK.B",
    "brk-b",
    "BRK-B",
    "005930",
    "NA",
    "TRUE",
    "it's",
    'a"b',
    "ß€",
]


def _store(root: Path, frame: pl.DataFrame, **options: object) -> Workspace:
    space = Workspace(root)
    root.mkdir(exist_ok=True)
    frame.write_parquet(root / "in.parquet")
    assert ingest(from_files(root / "in.parquet", **options), space, now=NOW).exit_code == 0
    return space


def _same(one: Workspace, other: Workspace) -> bool:
    return scan_bars(one).collect().equals(scan_bars(other).collect()) and list_symbols(one).drop("source").equals(
        list_symbols(other).drop("source")
    )


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
@pytest.mark.parametrize("per_symbol", [False, True])
def test_an_export_taken_in_again_gives_the_same_store(
    tmp_path: Path, form: Form, per_symbol: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "GROUP_ROWS", 1_000)
    frame = walk(ODD, days=3).with_columns(pl.col("close", "open", "high", "low") / 3.0)
    space = _store(tmp_path / "a", frame)
    out = tmp_path / ("out" if per_symbol else f"out.{form}")
    done = export_bars(space, out, form=form, per_symbol=per_symbol)
    assert (done.version, done.bars, len(done.files)) == (0, frame.height, len(ODD) if per_symbol else 1)
    assert done.clocks == {XNYS: tuple(sorted(ODD))}
    other = Workspace(tmp_path / "b")
    assert ingest(from_files(out), other, now=NOW).exit_code == 0
    assert _same(space, other)


def test_names_of_files_stay_apart_on_every_file_system_and_inside_the_folder(tmp_path: Path) -> None:
    names = [*ODD, "x" * 64, "X" * 64, "\U0001f600" * 60, "\U0001f600" * 61]
    space = _store(tmp_path / "a", walk(names, days=1))
    done = export_bars(space, tmp_path / "out", form="csv", per_symbol=True)
    files = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*"))
    assert len(files) == len(names) == len({name.casefold() for name in files})
    assert sorted(path.name for path in done.files) == files
    assert all("/" not in name and len(name) < 200 and name.startswith("~") for name in files)
    assert not any(name.partition(".")[0].upper() in {"CON", "NUL"} for name in files)


def test_a_store_of_two_clocks_comes_back_one_clock_at_a_time(tmp_path: Path, typed: Typed) -> None:
    space = _store(tmp_path / "a", walk(["A"], days=3))
    walk(["B"], days=3, clock=ROUND).write_parquet(tmp_path / "b.parquet")
    ingest(from_files(tmp_path / "b.parquet", calendar="24/7"), space, now=NOW)
    code, out, err = typed("bars", "export", "-w", str(tmp_path / "a"), "-o", str(tmp_path / "o.parquet"))
    assert (code, out) == (0, "")
    lines = [line.partition("klinepred ")[2].split() for line in err.splitlines() if "to take it in" in line]
    assert len(lines) == 2
    for line in lines:
        typed(*line, "-w", str(tmp_path / "c"), "--now", "2026-11-30")
    assert _same(space, Workspace(tmp_path / "c"))


def test_an_export_is_of_the_symbols_the_span_and_the_version_asked_for(tmp_path: Path) -> None:
    frame = walk(["A", "B", "C"], days=40)
    space = _store(tmp_path / "a", frame.filter(pl.col("ts") < utc("2026-06-20T00:00:00")))
    _store(tmp_path / "a", frame)
    low, high = utc("2026-06-10T15:00:00"), utc("2026-07-03T15:00:00")
    done = export_bars(space, tmp_path / "o.csv", form="csv", symbols=["C", "A"], start=low, end=high, as_of=0)
    want = frame.filter(
        pl.col("symbol").is_in(["A", "C"]) & (pl.col("ts") >= low) & (pl.col("ts") < utc("2026-06-20T00:00:00"))
    )
    got = pl.read_csv(tmp_path / "o.csv").with_columns(pl.col("ts").str.to_datetime(time_zone="UTC", time_unit="us"))
    assert got.equals(want)
    assert (done.version, done.bars) == (0, want.height)


def test_what_cannot_be_exported_is_said_and_leaves_no_file(tmp_path: Path) -> None:
    space = _store(tmp_path / "a", walk(["A"], days=1))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(StoreError, match="at least one bar"):
        export_bars(space, tmp_path / "o.csv", form="csv", start=utc("2027-01-01T00:00:00"))
    with pytest.raises(StoreError, match="no data for X"):
        export_bars(space, tmp_path / "o.csv", form="csv", symbols=["X"])
    with pytest.raises(UsageError, match="--per-symbol"):
        export_bars(space, tmp_path / "full", form="csv")
    with pytest.raises(UsageError, match="new or empty"):
        export_bars(space, tmp_path / "full", form="csv", per_symbol=True)
    with pytest.raises(StoreError, match="No space left"):
        export_bars(space, Path("/dev/full"), form="parquet")
    with pytest.raises(StoreError, match="klinepred ingest"):
        export_bars(Workspace(tmp_path / "none"), tmp_path / "o.csv", form="csv")
    assert not (tmp_path / "o.csv").exists()
