"""In: tables worked out, files kept, damaged, forbidden. Out: always the right table, worked out again if need be."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from klinepred import almanac
from klinepred.almanac import kept
from klinepred.sessions import Clock, segments

TABLE = pl.DataFrame({"session": [1, 2, 3], "zone": ["UTC"] * 3})


class Work:
    """Works a table out and counts how often."""

    def __init__(self, table: pl.DataFrame = TABLE) -> None:
        self.times = 0
        self._table = table

    def __call__(self) -> pl.DataFrame:
        self.times += 1
        return self._table


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tables are kept in a test."""
    monkeypatch.setenv("KLINEPRED_CACHE", str(tmp_path))
    return tmp_path / "calendars"


def test_a_table_is_worked_out_once(folder: Path) -> None:
    work = Work()
    assert kept("X", work).equals(TABLE)
    assert kept("X", work).equals(TABLE)
    assert work.times == 1
    assert len(list(folder.iterdir())) == 1, "and no half-written file stays"


def test_another_name_or_another_version_of_a_tool_is_another_table(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Work(TABLE.reverse())
    kept("X", Work())
    assert kept("Y", other).equals(TABLE.reverse())
    monkeypatch.setattr(almanac, "version", lambda tool: "99")
    assert kept("X", other).equals(TABLE.reverse())
    assert other.times == 2
    assert len(list(folder.iterdir())) == 3


def test_other_code_works_the_table_out_anew(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept("X", Work())
    code = tmp_path / "sessions.py"
    code.write_bytes(almanac._CODE.read_bytes() + b"# changed\n")
    monkeypatch.setattr(almanac, "_CODE", code)
    again = Work(TABLE.reverse())
    assert kept("X", again).equals(TABLE.reverse())
    assert again.times == 1


@pytest.mark.parametrize("damage", ["cut", "empty", "other bytes", "other numbers", "no digest", "a folder"])
def test_a_damaged_file_is_not_believed(folder: Path, damage: str) -> None:
    kept("X", Work())
    (path,) = folder.iterdir()
    good = path.read_bytes()
    if damage == "a folder":
        path.unlink()
        path.mkdir()
    elif damage == "other numbers":
        pl.read_ipc(path).with_columns(pl.col("session") + 1).write_ipc(path)
    elif damage == "no digest":
        TABLE.write_ipc(path)
    else:
        path.write_bytes({"cut": good[: len(good) // 2], "empty": b"", "other bytes": b"ARROW1" + good[::-1]}[damage])
    work = Work()
    assert kept("X", work).equals(TABLE)
    assert work.times == 1


def test_where_nothing_can_be_kept_it_is_worked_out_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work()
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    for folder in ("", str(tmp_path / "file")):
        monkeypatch.setenv("KLINEPRED_CACHE", folder)
        for _ in range(2):
            assert kept("X", work).equals(TABLE)
    assert work.times == 4


def test_stretches_of_trading_are_the_same_from_the_disk(folder: Path) -> None:
    from klinepred import sessions

    fresh = {}
    for name in ("XNYS", "XHKG", "24/7", "XNYS+extended"):
        sessions._almanac.cache_clear()
        fresh[name] = segments(Clock.parse(name))
    assert len(list(folder.iterdir())) == 4
    for name, table in fresh.items():
        sessions._almanac.cache_clear()
        assert segments(Clock.parse(name)).equals(table), name
        assert segments(Clock.parse(name)).schema == table.schema
    assert Clock("XHKG").zone == "Asia/Hong_Kong"
