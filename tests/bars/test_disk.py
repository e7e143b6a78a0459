"""In: disks that are full, limited or read-only. Out: one message, a non-zero exit, the old bars as they were."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars.ingest import ingest
from klinepred.bars.store import scan_bars
from klinepred.paths import Workspace
from tests.bars.made import NOW, from_files, walk

LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
from klinepred.cli import main
sys.exit(main(sys.argv[2:]))
"""


SOAK = os.environ.get("KLINEPRED_SOAK") == "1"
ENOUGH_TO_FAIL = (10, 1_000, 2_000, 10_000, 30_000, 60_000, 120_000)
LIMITS = (10, 1_000, 10_000, 60_000, *(range(500, 90_000, 2_500) if SOAK else ()))
ROOMS = (2_000, 30_000, 120_000, *(range(4_096, 330_000, 16_384) if SOAK else ()))
"""Bytes; the larger ones of a soak may be just enough."""


def _limited(size: int, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LIMITED, str(size), *words], capture_output=True, text=True, check=False, timeout=120
    )


def _is_one_message(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert [line.split(":")[0].strip() for line in lines[-4:]] == ["error", "expected", "got", "do this"]
    assert len(lines) == 4, done.stderr
    assert "panicked" not in done.stderr


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "lock" not in path.name}


@pytest.mark.parametrize("size", LIMITS)
def test_a_limit_of_file_size_ends_in_one_message_and_old_bars_as_they_were(tmp_path: Path, size: int) -> None:
    frame = walk(["A", "B", "C"], days=90)
    old, new = frame.filter(pl.col("ts").dt.month() == 6), tmp_path / "new.parquet"
    old.write_parquet(tmp_path / "old.parquet")
    frame.write_parquet(new)
    ingest(from_files(tmp_path / "old.parquet"), Workspace(tmp_path), now=NOW)
    before = _files(tmp_path / "data" / "bars")
    done = _limited(size, "ingest", str(new), "-w", str(tmp_path), "--now", "2026-11-30")
    if done.returncode or size in ENOUGH_TO_FAIL:
        _is_one_message(done)
        assert _files(tmp_path / "data" / "bars") == before
        assert scan_bars(Workspace(tmp_path)).drop("calendar").collect().equals(old)
    assert ingest(from_files(new), Workspace(tmp_path), now=NOW).exit_code == 0
    assert scan_bars(Workspace(tmp_path)).drop("calendar").collect().equals(frame)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
@pytest.mark.parametrize("free", ROOMS)
def test_a_full_disk_ends_in_one_message_and_old_bars_as_they_were(tmp_path: Path, free: int) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        frame = walk(["A", "B", "C"], days=90)
        old, new = frame.filter(pl.col("ts").dt.month() == 6), tmp_path / "new.parquet"
        old.write_parquet(tmp_path / "old.parquet")
        frame.write_parquet(new)
        ingest(from_files(tmp_path / "old.parquet"), Workspace(disk), now=NOW)
        before = _files(disk / "data" / "bars")
        room = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        (disk / "filler").write_bytes(b"0" * (room - free))
        done = _limited(2**40, "ingest", str(new), "-w", str(disk), "--now", "2026-11-30")
        if done.returncode or free in ENOUGH_TO_FAIL:
            _is_one_message(done)
            assert _files(disk / "data" / "bars") == before
            (disk / "filler").unlink()
            assert scan_bars(Workspace(disk)).drop("calendar").collect().equals(old)
        assert ingest(from_files(new), Workspace(disk), now=NOW).exit_code == 0
        assert scan_bars(Workspace(disk)).drop("calendar").collect().equals(frame)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a disk")
def test_a_read_only_disk_ends_in_one_message_and_can_be_read(tmp_path: Path) -> None:
    disk, new = tmp_path / "disk", tmp_path / "new.parquet"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", str(disk)], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        walk(["A"]).write_parquet(new)
        ingest(from_files(new), Workspace(disk), now=NOW)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        walk(["A"], days=5).write_parquet(new)
        _is_one_message(_limited(2**40, "ingest", str(new), "-w", str(disk), "--now", "2026-11-30"))
        assert scan_bars(Workspace(disk)).collect().height == 234
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_ends_in_one_message(tmp_path: Path) -> None:
    walk(["A"]).write_parquet(tmp_path / "new.parquet")
    ingest(from_files(tmp_path / "new.parquet"), Workspace(tmp_path), now=NOW)
    walk(["A"], days=5).write_parquet(tmp_path / "new.parquet")
    folders = [path for path in (tmp_path / "data").rglob("*") if path.is_dir()]
    for folder in folders:
        folder.chmod(0o500)
    try:
        _is_one_message(
            _limited(2**40, "ingest", str(tmp_path / "new.parquet"), "-w", str(tmp_path), "--now", "2026-11-30")
        )
    finally:
        for folder in folders:
            folder.chmod(0o700)
    assert scan_bars(Workspace(tmp_path)).collect().height == 234
