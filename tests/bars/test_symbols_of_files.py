"""In: several files, `--symbols`. Out: each row goes to the symbol its file is of; others are left out."""

from __future__ import annotations

import zipfile
from pathlib import Path

import polars as pl

from klinepred.bars.ingest import ingest
from klinepred.bars.report import IngestReport
from klinepred.bars.store import scan_bars
from klinepred.paths import Workspace
from tests.bars.made import NOW, from_files, walk
from tests.conftest import Typed


def _write(folder: Path, name: str, symbol: str, *, column: bool = False, days: int = 2, seed: int = 1) -> Path:
    table = walk([symbol], days=days, seed=seed)
    path = folder / name
    (table if column else table.drop("symbol")).write_csv(path)
    return path


def _take(space: Path, *paths: Path, **options: object) -> tuple[IngestReport, pl.DataFrame]:
    report = ingest(from_files(*paths, **options), Workspace(space), now=NOW)
    none = report.version is None
    return report, pl.DataFrame() if none else scan_bars(Workspace(space)).collect()


def test_one_symbol_of_many_files_takes_that_one_alone(tmp_path: Path) -> None:
    files = [_write(tmp_path, f"{name}.csv", name, seed=seed) for seed, name in enumerate(["AAA", "BBB", "CCC"])]
    report, bars = _take(tmp_path / "one", *files, symbols=("AAA",))
    assert (report.exit_code, [(row.symbol, row.status, row.new) for row in report.symbols]) == (
        0,
        [("AAA", "ok", 156)],
    )
    assert bars["close"].to_list() == pl.read_csv(files[0])["close"].to_list()
    assert sum("left out: it is of" in line for line in report.remarks) == 2
    report, bars = _take(tmp_path / "two", *files, symbols=("AAA", "CCC"))
    assert (report.exit_code, bars["symbol"].unique().sort().to_list()) == (0, ["AAA", "CCC"])


def test_files_in_a_zip_count_as_several(tmp_path: Path) -> None:
    files = [_write(tmp_path, f"{name}.csv", name, seed=seed) for seed, name in enumerate(["AAA", "BBB"])]
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as packed:
        for path in files:
            packed.write(path, path.name)
    report, bars = _take(tmp_path / "w", tmp_path / "many.zip", symbols=("BBB",))
    assert report.exit_code == 0
    assert bars["close"].to_list() == pl.read_csv(files[1])["close"].to_list()


def test_one_file_takes_the_name_the_user_gives_it(tmp_path: Path) -> None:
    report, _ = _take(tmp_path / "w", _write(tmp_path, "BTCUSDT-5m.csv", "X"), symbols=("bitcoin",))
    assert [row.symbol for row in report.symbols] == ["bitcoin"]


def test_names_that_say_the_symbol_in_other_letters_or_none_at_all_fit(tmp_path: Path) -> None:
    walk(["X"], days=2).drop("symbol").write_csv(tmp_path / "BTCUSDT-5m-2026-06.csv")
    walk(["X"], start="2026-06-03", days=2).drop("symbol").write_csv(tmp_path / "part2.csv")
    report, _ = _take(
        tmp_path / "w", tmp_path / "BTCUSDT-5m-2026-06.csv", tmp_path / "part2.csv", symbols=("BTC/USDT",)
    )
    assert [(row.symbol, row.new) for row in report.symbols] == [("BTC/USDT", 312)]


def test_a_symbol_that_some_file_has_is_no_failure_of_the_others(tmp_path: Path, typed: Typed) -> None:
    files = [_write(tmp_path, f"{name}.csv", name, column=True) for name in ("AAA", "BBB", "CCC")]
    words = [str(path) for path in files]
    code, _, err = typed("ingest", *words, "--symbols", "AAA,CCC", "-w", str(tmp_path / "w"), "--calendar", "XNYS")
    assert code == 0
    assert "no row of" not in err
    code, _, err = typed("ingest", *words, "--symbols", "AAA,ZZZ", "-w", str(tmp_path / "v"), "--calendar", "XNYS")
    assert code == 3
    assert "ZZZ" in err
