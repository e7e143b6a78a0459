"""In: stores with many or old commits. Out: every version stays readable; --as-of names what there is."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from klinepred.bars import tables
from klinepred.bars.commits import find_version, read_commits
from klinepred.bars.parts import MONTH
from klinepred.bars.tables import BARS, scan_table
from klinepred.errors import StoreError
from tests.bars.made import walk

OLD = datetime.now(UTC) - timedelta(days=400)


def _bars(rows: int) -> pl.DataFrame:
    return walk(["A"], days=1).head(rows).with_columns(pl.lit("2026-06").alias(MONTH))


def _age(folder: Path) -> None:
    """Date every commit of the table 400 days back, by the clock of the file system and in what it says itself."""
    for path in (folder / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["timestamp"] = int(OLD.timestamp() * 1000)
        path.write_text("\n".join(json.dumps(line) for line in lines))
    for path in (folder / "_delta_log").iterdir():
        os.utime(path, (OLD.timestamp(), OLD.timestamp()))


def _foreign(folder: Path, times: int) -> None:
    """Commits by deltalake as it comes, with its checkpoints and clean-ups."""
    for number in range(times):
        write_deltalake(folder, _bars(1).with_columns(close=pl.lit(float(number))), mode="append")


def _shortened(folder: Path) -> None:
    """A table by deltalake as it comes, but for a checkpoint every 10 commits: its first log files expire."""
    often = {"delta.checkpointInterval": "10"}
    write_deltalake(folder, _bars(3), partition_by=[MONTH], configuration=often)
    _foreign(folder, 15)
    _age(folder)
    _foreign(folder, 15)


def test_deltalake_left_to_itself_loses_the_first_version(tmp_path: Path) -> None:
    _shortened(tmp_path)
    assert not (tmp_path / "_delta_log" / f"{0:020}.json").exists()


@pytest.mark.parametrize("made_by", ["klinepred", "deltalake"])
def test_no_version_expires_however_many_commits_follow(tmp_path: Path, made_by: str) -> None:
    folder = tmp_path / BARS
    if made_by == "klinepred":
        tables.append(tmp_path, BARS, _bars(3), note={})
    else:
        write_deltalake(folder, _bars(3), partition_by=[MONTH])  # a store of a release without these properties
        tables.append(tmp_path, BARS, _bars(1), note={})
    _age(folder)
    for _ in range(60):
        tables.append(tmp_path, BARS, _bars(1), note={})
    assert list((folder / "_delta_log").glob("*.checkpoint.parquet"))
    _age(folder)
    _foreign(folder, 60)
    assert sorted(scan_table(tmp_path, BARS, 0).collect()["ts"]) == sorted(_bars(3)["ts"])
    settings = [commit for commit in read_commits(folder) if commit.operation == "settings"]
    assert len(settings) == (made_by == "deltalake")
    assert DeltaTable(folder).metadata().configuration["delta.enableExpiredLogCleanup"] == "false"


def test_a_moment_means_the_last_version_made_by_then_whatever_the_file_system_says(tmp_path: Path) -> None:
    for _ in range(3):
        tables.append(tmp_path, BARS, _bars(1), note={})
    times = [commit.time for commit in read_commits(tmp_path / BARS)]
    for number, path in enumerate(sorted((tmp_path / BARS / "_delta_log").glob("*.json"))):
        os.utime(path, (number, number))  # as a copy to another disk may leave them
    assert [find_version(tmp_path / BARS, time) for time in times] == [0, 1, 2]
    assert find_version(tmp_path / BARS, times[1] - timedelta(milliseconds=1)) == 0
    assert find_version(tmp_path / BARS, times[2] + timedelta(days=9)) == 2


def test_a_version_that_is_not_there_is_told_from_the_ends_of_the_log(tmp_path: Path) -> None:
    for _ in range(3):
        tables.append(tmp_path, BARS, _bars(1), note={})
    first = read_commits(tmp_path / BARS)[0].time
    with pytest.raises(StoreError, match=rf"0 \({first:%Y-%m-%dT%H:%M:%S}Z\) to 2 .*\n.*before the first"):
        find_version(tmp_path / BARS, first - timedelta(seconds=1))
    with pytest.raises(StoreError, match=r"version 7(.|\n)*to 2 (.|\n)*after the last"):
        find_version(tmp_path / BARS, 7)


def test_a_version_whose_files_are_gone_is_an_error_that_says_so(tmp_path: Path) -> None:
    tables.append(tmp_path, BARS, _bars(3), note={})
    tables.overwrite(tmp_path, BARS, _bars(2), note={})
    assert scan_table(tmp_path, BARS, 0).collect().height == 3
    (gone,) = [tmp_path / BARS / path for path in read_commits(tmp_path / BARS)[1].removed]
    gone.unlink()
    assert scan_table(tmp_path, BARS).collect().height == 2
    with pytest.raises(StoreError, match=r"version 0(.|\n)*1 gone(.|\n)*klinepred bars history"):
        scan_table(tmp_path, BARS, 0)


def test_a_data_file_that_was_cut_off_is_an_error_that_says_so(tmp_path: Path) -> None:
    tables.append(tmp_path, BARS, _bars(3), note={})
    (data,) = (tmp_path / BARS).rglob("*.parquet")
    whole = data.stat().st_size
    os.truncate(data, 500)
    with pytest.raises(StoreError, match=rf"expected: {whole:,} bytes, as it was written\n +got: +500\n"):
        scan_table(tmp_path, BARS)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"add": {}}', b'{"commitInfo": {"timestamp": "x"}}', None])
def test_a_damaged_log_is_named(tmp_path: Path, damage: bytes | None) -> None:
    for _ in range(3):
        tables.append(tmp_path, BARS, _bars(1), note={})
    path = tmp_path / BARS / "_delta_log" / f"{1:020}.json"
    path.unlink() if damage is None else path.write_bytes(damage)
    if damage == b"":  # an empty entry says nothing wrong; the version is as the one before
        assert [len(commit.added) for commit in read_commits(tmp_path / BARS)] == [1, 0, 1]
        return
    with pytest.raises(StoreError, match="backup"):
        read_commits(tmp_path / BARS)


def test_a_log_that_was_cleaned_up_begins_with_its_checkpoint(tmp_path: Path) -> None:
    _shortened(tmp_path)
    commits = read_commits(tmp_path)
    first = commits[0].version
    assert 0 < first < 30
    assert [commit.version for commit in commits] == [*range(first, 31)]
    assert sum(commits[0].added.values()) == 3 + first
    with pytest.raises(StoreError, match="before the first"):
        find_version(tmp_path, first - 1)
