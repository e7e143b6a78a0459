"""In: predictions recorded in any order, twice, by two at once, killed. Out: a ledger in which each stands once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from klinepred.bars.lock import writer
from klinepred.errors import StoreError
from klinepred.live import table
from klinepred.live.ledger import PREDICTIONS, Recorded, ledger_folder, record, universe_of
from klinepred.paths import Workspace
from klinepred.schema import TS
from tests.bars.made import utc
from tests.live.made import MODEL, RUN, predicted

ROOT = Path(__file__).parents[2]
NOW = utc("2026-06-10T14:00:30")
ROW = predicted("AAPL", "2026-06-10T13:55", "2026-06-10T14:00")


def rows_of(space: Workspace) -> pl.DataFrame:
    return table.scan(ledger_folder(space), PREDICTIONS).collect().sort("model", "symbol", "bar_ts")


def test_a_live_prediction_is_kept_with_what_it_was_made_from(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    assert record(space, ROW, store_version=7, now=NOW, universe=("AAPL", "MSFT")) == Recorded(1, 0, 0)
    found = rows_of(space)
    assert found.select(ROW.columns).equals(ROW)
    assert found["store_version"].to_list() == [7]
    assert found["made_at"].to_list() == [NOW]
    assert universe_of(space, MODEL, RUN) == ("AAPL", "MSFT")


def test_the_first_prediction_of_a_bar_stands(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    record(space, ROW, store_version=1, now=NOW)
    other = ROW.with_columns(expected_return_bps=pl.lit(99.0))
    done = record(space, other, store_version=2, now=NOW)
    assert done == Recorded(0, 1, 0)
    assert done.sentence() == "ledger: 0 new; 1 of this model were in it already, and the first stand"
    assert rows_of(space)["expected_return_bps"].to_list() == [1.0]
    assert table.version(ledger_folder(space), PREDICTIONS) == 0  # and no empty commit


def test_a_row_twice_in_one_call_counts_once_and_another_model_counts_too(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    both = pl.concat([ROW, ROW.with_columns(p_up=pl.lit(0.9)), ROW.with_columns(model=pl.lit("other"))])
    assert record(space, both, store_version=1, now=NOW) == Recorded(2, 1, 0)
    assert rows_of(space).select("model", "p_up").rows() == [(MODEL, 0.5), ("other", 0.5)]


def test_a_prediction_of_a_bar_that_has_finished_is_not_live(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    assert record(space, ROW, store_version=1, now=utc("2026-06-10T14:05:00")) == Recorded(0, 0, 1)
    assert not ledger_folder(space).exists()
    assert record(space, ROW, store_version=1, now=utc("2026-06-10T14:04:59")) == Recorded(1, 0, 0)


@pytest.mark.parametrize(
    "symbol", ["^GSPC", "EURUSD=X", "BTC/USDT", "Ä ö", "'; drop table x;--", "a\nb", "../../up", "💶"]
)
def test_any_symbol_and_model_name_comes_back_as_it_was(tmp_path: Path, symbol: str) -> None:
    space = Workspace(tmp_path / "a b ü")
    rows = predicted(symbol, "2026-06-10T13:55", "2026-06-10T14:00", model=f"m {symbol}")
    record(space, rows, store_version=1, now=NOW, universe=(symbol,))
    assert record(space, rows, store_version=1, now=NOW) == Recorded(0, 1, 0)
    assert rows_of(space).select("symbol", "model").row(0) == (symbol, f"m {symbol}")
    assert universe_of(space, f"m {symbol}", RUN) == (symbol,)
    assert not [path for path in tmp_path.iterdir() if path.name != "a b ü"]


def test_many_small_files_become_one_and_no_row_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "FOLD_FILES", 4)
    monkeypatch.setattr(table, "FOLD_EVERY", 2)
    space = Workspace(tmp_path)
    for minute in range(0, 55, 5):
        row = predicted("A", f"2026-06-10T14:{minute:02}", f"2026-06-10T15:{minute:02}", float(minute))
        record(space, row, store_version=minute, now=NOW)
    found = rows_of(space)
    assert found["expected_return_bps"].to_list() == [float(minute) for minute in range(0, 55, 5)]
    assert found["store_version"].to_list() == list(range(0, 55, 5))
    since = table.scan(ledger_folder(space), PREDICTIONS, since=utc("2026-06-10T14:45")).collect()
    assert sorted(since["expected_return_bps"]) == [45.0, 50.0]
    assert table.version(ledger_folder(space), PREDICTIONS) > 11  # folds are commits of their own


def test_another_writer_is_waited_for_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Workspace(tmp_path)
    record(space, ROW, store_version=1, now=NOW)
    monkeypatch.setattr("klinepred.live.ledger.WAIT_S", 0.05)
    with writer(ledger_folder(space)), pytest.raises(StoreError, match=f"process {os.getpid()}"):
        record(space, ROW, store_version=1, now=NOW)


def test_a_ledger_of_an_older_klinepred_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "FOLD_EVERY", 1)
    older = table.Table("predictions", {name: kind for name, kind in PREDICTIONS.schema.items() if name != "p_up"})
    space = Workspace(tmp_path)
    before = ROW.drop("p_up").with_columns(
        store_version=pl.lit(1, pl.Int64), made_at=pl.lit(NOW).cast(TS), written_at=pl.lit(NOW).cast(TS)
    )
    with writer(ledger_folder(space)):
        table.append(ledger_folder(space), older, before)
    assert rows_of(space)["p_up"].to_list() == [None]
    assert record(space, ROW.with_columns(symbol=pl.lit("MSFT")), store_version=1, now=NOW) == Recorded(1, 0, 0)
    assert rows_of(space)["p_up"].to_list() == [None, 0.5]
    assert record(space, ROW, store_version=1, now=NOW) == Recorded(0, 1, 0)
    fields = DeltaTable(ledger_folder(space) / "predictions").schema().fields
    assert {field.name for field in fields} == set(PREDICTIONS.schema)  # other readers see it too
    with writer(ledger_folder(space)):  # and the older one can still write beside it
        table.append(ledger_folder(space), older, before.with_columns(symbol=pl.lit("IBM")))
    assert rows_of(space).select("symbol", "p_up").rows() == [("AAPL", None), ("IBM", None), ("MSFT", 0.5)]


def test_a_damaged_ledger_is_told_with_a_way_out(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    record(space, ROW, store_version=1, now=NOW)
    home = ledger_folder(space) / "predictions"
    (data,) = home.glob("*.parquet")
    data.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="1 of 1 data files of version 0 gone") as raised:
        record(space, ROW, store_version=1, now=NOW)
    assert "the next prediction begins a new ledger" in str(raised.value)
    (home / "_delta_log" / f"{0:020}.json").write_text("{")
    with pytest.raises(StoreError, match="a Delta table with all its files"):
        record(space, ROW, store_version=1, now=NOW)


def test_a_ledger_file_that_was_cut_off_is_damage_and_told(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    record(space, ROW, store_version=1, now=NOW)
    (data,) = (ledger_folder(space) / "predictions").glob("*.parquet")
    os.truncate(data, 500)
    with pytest.raises(StoreError, match=r"of 500 bytes, not [\d,]+ bytes, as it was written"):
        record(space, ROW, store_version=1, now=NOW)


def test_data_files_without_their_log_are_not_begun_anew(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    record(space, ROW, store_version=1, now=NOW)
    shutil.rmtree(ledger_folder(space) / "predictions" / "_delta_log")
    with pytest.raises(StoreError, match="data files, and no log"):
        record(space, ROW, store_version=1, now=NOW)


WRITER = """
import sys
from klinepred.live.ledger import record
from klinepred.paths import Workspace
from klinepred.schema import TS
from tests.bars.made import utc
from tests.live.made import predicted
import polars as pl
space = Workspace(sys.argv[1])
sys.stdin.readline()
for minute in range(12, 28):
    stamp = f"T14:{minute}"
    rows = [predicted(name, "2026-06-10" + stamp, "2026-06-11" + stamp, float(sys.argv[2])) for name in "ABC"]
    record(space, pl.concat(rows), store_version=1, now=utc("2026-06-10T14:00"))
    print("2026-06-10" + stamp, flush=True)
"""


def _writer(space: Path, value: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(space), value],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_writers_at_once_leave_each_prediction_once(tmp_path: Path) -> None:
    both = [_writer(tmp_path, value) for value in ("1", "2")]
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in both:
        process.communicate()
        assert process.returncode == 0
    found = rows_of(Workspace(tmp_path))
    assert found.height == 3 * 16
    assert found.n_unique(["symbol", "bar_ts"]) == 3 * 16
    # a call is one commit: of one bar all symbols are from the same writer
    assert found.n_unique(["bar_ts", "expected_return_bps"]) == 16


@pytest.mark.parametrize("wait_s", [0.0, 0.1])
def test_a_killed_writer_leaves_whole_commits_and_no_lock(tmp_path: Path, wait_s: float) -> None:
    process = _writer(tmp_path, "1")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    said = process.stdout.readline().strip()
    time.sleep(wait_s)
    os.kill(process.pid, signal.SIGKILL)
    said = [said, *process.stdout.read().split()][-1]
    process.wait()
    process.stdin.close()
    process.stdout.close()
    space = Workspace(tmp_path)
    found = rows_of(space)
    sizes = found.group_by("bar_ts").len()["len"]
    assert set(sizes) == {3}  # a bar is there with all its symbols or not at all
    told = (int(said[-2:]) - 12) + 1
    assert told <= sizes.len() <= told + 1  # nothing that was told of is gone
    record(space, ROW, store_version=1, now=NOW)
    assert rows_of(space).height == found.height + 1
