"""In: folders, symbols, contents chosen by anybody. Out: URIs that open, names that are safe, whole files."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from klinepred.errors import UsageError
from klinepred.paths import (
    Workspace,
    default_pipelines,
    default_presets,
    file_name,
    open_atomic,
    sqlite_uri,
    symbol_of,
    write_atomic,
)


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        (PurePosixPath("/home/ann/m.db"), "sqlite:////home/ann/m.db"),
        (PurePosixPath("/home/Jö hn/my data/m.db"), "sqlite:////home/Jö hn/my data/m.db"),
        (PureWindowsPath("C:\\Users\\Jö\\my data\\m.db"), "sqlite:///C:/Users/Jö/my data/m.db"),
        (PurePosixPath("/a%b/c?d/e#f.db"), "sqlite+pysqlite:////a%25b/c%3Fd/e%23f.db"),
    ],
)
def test_sqlite_uri_of_a_path(path: PurePosixPath | PureWindowsPath, uri: str) -> None:
    assert sqlite_uri(path) == uri


@pytest.mark.parametrize(
    "folder", ["plain", "with blank", "ümläut 数据", "per%20cent", "a%b", "what?", "no#1", "a+b&c=d", "q'\"x"]
)
def test_sqlalchemy_opens_exactly_that_file(folder: str, tmp_path: Path) -> None:
    path = tmp_path / folder / "mlflow.db"
    path.parent.mkdir()
    engine = create_engine(sqlite_uri(path))
    with engine.begin() as connection:
        connection.execute(text("create table here (x integer)"))
    engine.dispose()
    assert [entry.name for entry in tmp_path.iterdir()] == [folder]
    store = sqlite3.connect(path)
    assert store.execute("select name from sqlite_master").fetchall() == [("here",)]
    store.close()


def test_workspace_knows_its_rooms(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "new")
    assert space.trained == tmp_path / "new" / "models" / "trained"
    assert space.tracking_uri == f"sqlite:///{tmp_path}/new/mlruns/mlflow.db"
    assert not space.root.exists()


def test_workspace_stays_where_it_was_when_the_folder_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    space = Workspace("here")
    monkeypatch.chdir("/")
    assert space.root == tmp_path / "here"


@pytest.mark.parametrize("below", ["", "sub", "sub/deeper"])
def test_workspace_in_a_file_is_refused(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="which is not one"):
        Workspace(tmp_path / "file" / below)


def test_workspace_of_a_user_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError):
        Workspace("~no-such-user-here/x")


SYMBOLS = st.text(min_size=0, max_size=30)


@given(SYMBOLS)
def test_file_name_can_be_turned_back(symbol: str) -> None:
    assert symbol_of(file_name(symbol)) == symbol


@given(SYMBOLS, SYMBOLS)
def test_file_names_differ_even_where_case_is_folded(one: str, other: str) -> None:
    assert (file_name(one).casefold() == file_name(other).casefold()) == (one == other)


@given(st.text(alphabet="abAB_%~-.2F", max_size=8), st.text(alphabet="abAB_%~-.2F", max_size=8))
def test_file_names_of_awkward_letters_differ_too(one: str, other: str) -> None:
    assert (file_name(one).casefold() == file_name(other).casefold()) == (one == other)


@given(SYMBOLS)
def test_file_name_is_harmless_on_any_file_system(symbol: str) -> None:
    name = file_name(symbol)
    assert name.isascii()
    assert not set(name) & set('/\\:*?"<>| .\0')
    assert PurePosixPath(name).name == name
    assert PureWindowsPath(name).name == name


@pytest.mark.parametrize(
    "symbol", ["CON", "NUL", "con", "../evil", "..", ".", "", "/etc/passwd", "BRK.B", "BTC/USDT", "数"]
)
def test_file_name_of_a_hostile_symbol_stays_in_its_folder(symbol: str, tmp_path: Path) -> None:
    name = file_name(symbol)
    assert not os.path.isreserved(name) if hasattr(os.path, "isreserved") else not PureWindowsPath(name).is_reserved()
    (tmp_path / name).write_text(symbol)
    assert [symbol_of(path.name) for path in tmp_path.iterdir()] == [symbol]


def test_symbols_that_differ_in_case_do_not_share_a_name() -> None:
    assert len({file_name(symbol).casefold() for symbol in ("brk-b", "BRK-B", "Brk-B")}) == 3


def test_defaults_are_found_from_here() -> None:
    assert (default_pipelines() / "demo.toml").is_file()
    assert (default_presets() / "lstm-3x256.toml").is_file()


def test_write_atomic_writes_text_and_bytes(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a" / "b.txt", "naïve\n")
    write_atomic(tmp_path / "a" / "c.bin", b"\0\1")
    assert (tmp_path / "a" / "b.txt").read_bytes() == "naïve\n".encode()
    assert (tmp_path / "a" / "c.bin").read_bytes() == b"\0\1"
    assert len(list((tmp_path / "a").iterdir())) == 2


def test_failed_write_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_atomic(path, "old")

    def half_written() -> None:
        with open_atomic(path) as out:
            out.write(b"half of the new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half_written()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_failure_of_the_last_step_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    write_atomic(path, "old")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_reader_sees_the_old_or_the_new_file_never_a_mixture(tmp_path: Path) -> None:
    path = tmp_path / "state"
    versions = {letter * 100_000 for letter in "ab"}
    write_atomic(path, "a" * 100_000)
    seen: set[str] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add(path.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(20):
        write_atomic(path, "ab"[turn % 2] * 100_000)
    stop.set()
    reader.join()
    assert seen <= versions


def test_new_file_has_the_rights_a_plain_write_gives_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    write_atomic(tmp_path / "new", "x")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "new").chmod(0o600)
    write_atomic(tmp_path / "new", "y")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600


def test_symbolic_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    write_atomic(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_longest_possible_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    write_atomic(path, "y")
    assert path.read_text() == "y"


def test_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_atomic(pipe, "through")
    reader.join()
    assert got == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
