"""In: ingests killed at random moments, two at once. Out: the store equals that of one undisturbed ingest."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars.ingest import ingest
from klinepred.bars.store import scan_bars
from klinepred.paths import Workspace
from tests.bars.made import NOW, flat, from_files, rows, walk

KILLS = int(os.environ.get("KLINEPRED_KILLS", "4"))

SCRIPT = """
import sys
from pathlib import Path
from datetime import UTC, datetime
from klinepred.bars.ingest import ingest
from klinepred.paths import Workspace
from klinepred.settings import DataSettings
import klinepred.bars.sources.files
data = DataSettings(source="files", paths=(sys.argv[1],))
print("ready", flush=True)
sys.stdin.readline()
sys.exit(ingest(data, Workspace(sys.argv[2]), now=datetime(2026, 11, 30, tzinfo=UTC)).exit_code)
"""


def _start(path: Path, space: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), str(space)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _close(process: subprocess.Popen[str]) -> None:
    process.communicate()


def _all(space: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    quarantine = pl.read_delta(str(space / "data" / "quarantine"))
    return scan_bars(Workspace(space)).collect(), quarantine.sort(quarantine.columns)


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.DataFrame, pl.DataFrame]:
    folder = tmp_path_factory.mktemp("market")
    bad = rows(flat("S00", "2026-06-01T20:00:00"), flat("S01", "2026-06-01T13:31:00"))
    frame = pl.concat([walk([f"S{number:02d}" for number in range(30)], start="2026-01-05", days=150), bad])
    path = folder / "bars.parquet"
    frame.write_parquet(path)
    ingest(from_files(path), Workspace(folder / "calm"), now=NOW)
    return path, *_all(folder / "calm")


def test_killed_at_any_moment_a_second_run_stores_the_same(
    market: tuple[Path, pl.DataFrame, pl.DataFrame], tmp_path: Path
) -> None:
    path, bars, quarantine = market
    chance = random.Random(5)  # noqa: S311
    amid = 0
    for number in range(KILLS):
        space = tmp_path / str(number)
        process = _start(path, space)
        _go(process)
        # wait for the first trace of the quarantine (odd numbers) or of the bars (even ones), then a random while more
        first = space / "data" / ("quarantine" if number % 2 else "bars")
        limit = time.monotonic() + 20.0
        while process.poll() is None and time.monotonic() < limit and not first.exists():
            time.sleep(0.0005)
        time.sleep(chance.uniform(0.0, 0.1))
        process.send_signal(signal.SIGKILL)
        _close(process)
        log = space / "data" / "bars" / "_delta_log"
        amid += not (log.is_dir() and any(log.glob("*.json")))
        assert ingest(from_files(path), Workspace(space), now=NOW).exit_code == 0
        again, aside = _all(space)
        assert again.equals(bars)
        assert aside.equals(quarantine)
    assert amid >= 1, "no kill fell between the first byte and the commit"


def test_two_ingests_of_one_file_at_once_leave_no_duplicate(
    market: tuple[Path, pl.DataFrame, pl.DataFrame], tmp_path: Path
) -> None:
    path, bars, quarantine = market
    pair = [_start(path, tmp_path) for _ in range(2)]
    for process in pair:
        _go(process)
    for process in pair:
        _close(process)
    assert [process.returncode for process in pair] == [0, 0]
    again, aside = _all(tmp_path)
    assert again.equals(bars)
    assert aside.equals(quarantine)
