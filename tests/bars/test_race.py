"""In: two ingests of different, overlapping files at the same time. Out: both succeed; no bar twice, none lost."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars import desk
from klinepred.bars.change import Change, commit_bars
from klinepred.bars.ingest import ingest
from klinepred.bars.report import IngestReport
from klinepred.bars.store import scan_bars, store_version
from klinepred.calendar import Clock
from klinepred.paths import Workspace
from klinepred.schema import BAR_SCHEMA, PRICES
from tests.bars.made import NOW, from_files, walk

SCRIPT = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from klinepred.bars.ingest import ingest
from klinepred.paths import Workspace
from klinepred.settings import DataSettings
import klinepred.bars.sources.files
data = DataSettings(source="files", paths=(sys.argv[1],), rescale="always")
print("ready", flush=True)
sys.stdin.readline()
sys.exit(ingest(data, Workspace(sys.argv[2]), now=datetime(2026, 11, 30, tzinfo=UTC)).exit_code)
"""


def at_once(space: Path, *paths: Path) -> list[int]:
    """Take each file in by a process of its own, all let go together; their exit codes."""
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(path), str(space)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for path in paths
    ]
    for run in runs:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
    for run in runs:
        assert run.stdin is not None
        run.stdin.write("\n")
        run.stdin.flush()
    for run in runs:
        run.communicate()
    return [run.returncode for run in runs]


def stored(space: Path) -> pl.DataFrame:
    return scan_bars(Workspace(space)).select(BAR_SCHEMA.keys()).collect()


def write(folder: Path, name: str, frame: pl.DataFrame) -> Path:
    path = folder / f"{name}.parquet"
    frame.write_parquet(path)
    return path


def revise(frame: pl.DataFrame, spot: int, volume: float) -> pl.DataFrame:
    """Another volume for the bar in row `spot`."""
    here = pl.int_range(pl.len()) == spot
    return frame.with_columns(volume=pl.when(here).then(volume).otherwise("volume"))


def take(space: Path, *paths: Path) -> IngestReport:
    reports = [ingest(from_files(path, rescale="always"), Workspace(space), now=NOW) for path in paths]
    return reports[-1]


def test_overlapping_files_at_once_leave_every_bar_once(tmp_path: Path) -> None:
    whole = walk(["A", "B"], days=40)
    low, high = whole["ts"].min(), whole["ts"].max()
    assert low is not None
    assert high is not None
    cuts = [pl.col("ts") < pl.lit(high) - pl.duration(days=10), pl.col("ts") > pl.lit(low) + pl.duration(days=10)]
    first, second = (write(tmp_path, f"{n}", whole.filter(cut)) for n, cut in enumerate(cuts))
    space = tmp_path / "space"
    assert at_once(space, first, second) == [0, 0]
    assert stored(space).equals(whole)


def test_two_revisions_at_once_end_as_one_after_the_other(tmp_path: Path) -> None:
    base = walk(["A"], days=40)
    calm = write(tmp_path, "base", base.head(1500))
    first = write(tmp_path, "first", revise(base, 700, 1.0).slice(400, 1400))
    second = write(tmp_path, "second", revise(revise(base, 700, 2.0), 1200, 3.0).slice(600))
    ends = []
    for number, order in enumerate(((first, second), (second, first))):
        take(tmp_path / str(number), calm, *order)
        ends.append(stored(tmp_path / str(number)))
    assert not ends[0].equals(ends[1])
    space = tmp_path / "space"
    take(space, calm)
    assert at_once(space, first, second) == [0, 0]
    got = stored(space)
    assert got.select("symbol", "ts").equals(base.select("symbol", "ts"))
    assert any(got.equals(end) for end in ends)


def test_a_rescaling_and_a_plain_ingest_at_once_end_on_one_basis(tmp_path: Path) -> None:
    base = walk(["A"], days=40)
    half = base.with_columns(*(pl.col(name) / 2.0 for name in PRICES), pl.col("volume") * 2.0)
    calm = write(tmp_path, "base", base.head(1500))
    first = write(tmp_path, "first", half.slice(1400, 300))
    second = write(tmp_path, "second", half.slice(1450))
    space = tmp_path / "space"
    take(space, calm)
    assert at_once(space, first, second) == [0, 0]
    assert stored(space).equals(half)


def test_an_ingest_waits_while_another_reads_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second cannot read before the first has written: it never appends what it did not see."""
    frame = walk(["A"])
    first, second = write(tmp_path, "first", frame.head(150)), write(tmp_path, "second", frame.slice(100))
    space = tmp_path / "space"
    other = threading.Thread(target=take, args=(space, second))
    write_bars = commit_bars
    waited: list[bool] = []

    def commit(place: Workspace, change: Change, *, stored: pl.DataFrame, clock: Clock, source: str) -> None:
        if not waited:
            waited.append(True)
            other.start()
            other.join(timeout=1.0)
            waited.append(other.is_alive() and store_version(Workspace(space)) is None)
        write_bars(place, change, stored=stored, clock=clock, source=source)

    monkeypatch.setattr(desk, "commit_bars", commit)
    assert take(space, first).exit_code == 0
    other.join(timeout=60.0)
    assert waited == [True, True]
    assert stored(space).equals(frame)
