"""In: months in many files. Out: the same bars in few, whatever else happens at that moment."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars import compaction
from klinepred.bars.compaction import compact
from klinepred.bars.history import list_history
from klinepred.bars.ingest import ingest
from klinepred.bars.parts import write_parts
from klinepred.bars.store import scan_bars, store_version
from klinepred.bars.tables import BARS, read_parts
from klinepred.errors import StoreError
from klinepred.paths import Workspace
from tests.bars.made import NOW, from_files, walk

SCRIPT = """
import sys
from datetime import UTC, datetime
from klinepred.bars.compaction import compact
from klinepred.bars.ingest import ingest
from klinepred.paths import Workspace
from klinepred.settings import DataSettings
import klinepred.bars.sources.files
space = Workspace(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
if len(sys.argv) > 2:
    data = DataSettings(source="files", paths=(sys.argv[2],))
    sys.exit(ingest(data, space, now=datetime(2026, 11, 30, tzinfo=UTC)).exit_code)
compact(space, most=1)
"""


def _start(*words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def _scattered(root: Path, *, parts: int, symbols: int = 4, days: int = 70) -> tuple[Workspace, pl.DataFrame]:
    """A store filled in `parts` ingests, each with every nth run of bars."""
    space = Workspace(root)
    root.mkdir(exist_ok=True)
    frame = walk([f"S{number}" for number in range(symbols)], days=days)
    for number in range(parts):
        path = root / "part.parquet"
        frame.filter(pl.int_range(pl.len()) // 26 % parts == number).write_parquet(path)
        assert ingest(from_files(path), space, now=NOW).exit_code == 0
    return space, frame


def _stored(space: Workspace, as_of: int | None = None) -> pl.DataFrame:
    return scan_bars(space, as_of=as_of).drop("calendar").collect()


def test_compaction_leaves_the_bars_and_every_older_version_as_they_were(tmp_path: Path) -> None:
    space, frame = _scattered(tmp_path, parts=5)
    before = [_stored(space, version) for version in range(5)]
    done = compact(space, most=1)
    assert [(month.month, month.before, month.after) for month in done] == [
        ("2026-06", 5, 1),
        ("2026-07", 5, 1),
        ("2026-08", 5, 1),
    ]
    assert sum(month.bars for month in done) == frame.height
    assert _stored(space).equals(frame)
    for version, bars in enumerate(before):
        assert _stored(space, version).equals(bars)
    assert list_history(space)["operation"].to_list()[5:] == ["compact"] * 3
    assert list_history(space)["rows"].to_list()[4:] == [frame.height] * 4
    assert compact(space, most=1) == []


def test_files_are_sorted_and_hold_neighbouring_symbols(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space, frame = _scattered(tmp_path, parts=3, days=10)
    monkeypatch.setattr(compaction, "FILE_ROWS", frame.height // 2)
    compact(space, most=1)
    parts = [pl.read_parquet(part.locate(space.data / BARS)) for part in read_parts(space.data, BARS)[1]]
    assert sorted(sorted(part["symbol"].unique()) for part in parts) == [["S0", "S1"], ["S2", "S3"]]
    assert all(part.equals(part.sort("symbol", "ts")) for part in parts)


def test_an_ingest_compacts_a_month_of_too_many_files_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction.compact, "__kwdefaults__", {"most": 4, "wait_s": 10.0})
    space, frame = _scattered(tmp_path, parts=5, days=5)
    assert len(read_parts(space.data, BARS)[1]) == 1
    assert _stored(space).equals(frame)
    assert store_version(space) == 5


def test_rows_that_come_back_otherwise_are_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space, frame = _scattered(tmp_path, parts=3, days=5)
    files = sorted((space.data / BARS).rglob("*.parquet"))
    monkeypatch.setattr(compaction, "write_parts", lambda folder, rows: write_parts(folder, rows.head(-1)))
    with pytest.raises(StoreError, match="read back"):
        compact(space, most=1)
    assert sorted((space.data / BARS).rglob("*.parquet")) == files
    assert _stored(space).equals(frame)
    assert store_version(space) == 2


def test_a_failed_compaction_does_not_fail_the_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise StoreError("store", expected="room", got="none", do="free some")

    monkeypatch.setattr(compaction, "compact", broken)
    space, frame = _scattered(tmp_path, parts=1, days=5)
    assert _stored(space).equals(frame)


def test_killed_at_any_moment_nothing_is_lost(tmp_path: Path) -> None:
    space, frame = _scattered(tmp_path, parts=4)
    for wait in (0.0, 0.01, 0.03, 0.06):
        process = _start(str(tmp_path))
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert _stored(space).equals(frame)
    compact(space, most=1)
    assert _stored(space).equals(frame)


def test_an_ingest_during_compactions_and_a_compaction_during_ingests_both_succeed(tmp_path: Path) -> None:
    space, frame = _scattered(tmp_path, parts=6)
    more = walk(["T0", "T1"], days=70, seed=3)
    more.write_parquet(tmp_path / "more.parquet")
    words = [(str(tmp_path),), (str(tmp_path), str(tmp_path / "more.parquet"))]
    pair = [_start(*each) for each in words]
    for process in pair:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in pair:
        process.communicate()
    assert [process.returncode for process in pair] == [0, 0]
    assert _stored(space).equals(pl.concat([frame, more]).sort("symbol", "ts"))
