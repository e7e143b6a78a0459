"""In: a server of object storage on this machine. Out: claims that a store there is what one in a folder is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from klinepred.bars import transaction
from klinepred.bars.commits import list_versions
from klinepred.bars.delivery import Delivery
from klinepred.bars.history import list_history
from klinepred.bars.ingest import take_in
from klinepred.bars.store import list_symbols, scan_bars, store_version
from klinepred.bars.tables import BARS
from klinepred.bars.tally import Tally
from klinepred.bars.turn import OutrunError, store_writer
from klinepred.bars.undo import delete_bars, restore_bars
from klinepred.bars.vacuum import vacuum
from klinepred.errors import KlinepredError, StoreError, UsageError
from klinepred.objects import ObjectPath
from klinepred.paths import Workspace
from klinepred.places import Places, read_places
from klinepred.settings import DataSettings
from tests.bars.made import NOW, walk
from tests.conftest import Typed
from tests.storage import BUCKET, storage_server

DATA = DataSettings(symbols=("A", "B"))


@pytest.fixture(scope="module", autouse=True)
def _storage() -> Iterator[None]:
    with storage_server() as found, pytest.MonkeyPatch.context() as patch:
        for name, value in found.items():
            patch.setenv(name, value)
        yield


def space_at(folder: Path, prefix: str) -> Workspace:
    folder.mkdir(exist_ok=True)
    (folder / "klinepred.toml").write_text(Places(f"s3://{BUCKET}/{prefix}").to_toml())
    return Workspace(folder)


def put_in(space: Workspace, frame: pl.DataFrame) -> None:
    take_in([Delivery(frame, "made")], DATA, space, now=NOW, tally=Tally())


def commit_after(space: Workspace, meanwhile: Callable[[], None]) -> None:
    """A turn of one machine in which another one writes."""
    with store_writer(space):
        meanwhile()
        transaction.commit(space.store / BARS, schema={"symbol": "string"}, note={})


def test_bars_come_back_as_they_do_from_a_folder(tmp_path: Path) -> None:
    frame = walk(["A", "B"], days=40)  # two months
    far, near = space_at(tmp_path / "far", "same"), Workspace(tmp_path / "near")
    for space in (far, near):
        put_in(space, frame.head(3000))
        put_in(space, frame.slice(2000).with_columns(pl.col("volume") + 1.0))
    assert not (tmp_path / "far" / "data" / "bars").exists()
    assert scan_bars(far).collect().equals(scan_bars(near).collect())
    assert scan_bars(far, symbols=["B"], as_of=0).collect().equals(scan_bars(near, symbols=["B"], as_of=0).collect())
    assert list_symbols(far).equals(list_symbols(near))
    assert list_history(far).drop("time").equals(list_history(near).drop("time"))


def test_what_was_done_can_be_undone_and_thinned_out(tmp_path: Path) -> None:
    space = space_at(tmp_path, "undone")
    put_in(space, walk(["A", "B"]))
    whole = scan_bars(space).collect()
    put_in(space, walk(["A"]).with_columns(pl.col("volume") + 1.0))
    assert delete_bars(space, ["B"]).gone == whole.height // 2
    restore_bars(space, 0)
    assert scan_bars(space).collect().equals(whole)
    gone = vacuum(space, named={}, keep_days=0)
    assert gone.lost == (1, 2)
    assert not any(path.is_file() for path in gone.files)
    assert scan_bars(space).collect().equals(whole)
    with pytest.raises(StoreError, match="gone, such as"):
        scan_bars(space, as_of=1)


def test_of_two_machines_that_write_at_once_one_is_refused_and_nothing_is_stored_twice(tmp_path: Path) -> None:
    one, two = (space_at(tmp_path / name, "shared") for name in ("one", "two"))  # each with a lock of its own
    frame = walk(["A", "B"])
    put_in(one, frame.head(100))
    with pytest.raises(OutrunError, match="another machine"):
        commit_after(one, lambda: put_in(two, frame.slice(100, 50)))
    assert scan_bars(one).collect().height == 150
    put_in(one, frame)
    assert scan_bars(one).collect().drop("calendar").equals(frame.sort("symbol", "ts"))


def test_a_commit_that_came_between_looking_and_writing_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (space_at(tmp_path / name, "between") for name in ("one", "two"))
    frame = walk(["A"])
    put_in(one, frame.head(100))
    keep_past = transaction.keep_past

    def meanwhile(table: Any) -> bool:
        if str(table.table_uri).rstrip("/").endswith(BARS):
            monkeypatch.setattr(transaction, "keep_past", keep_past)
            put_in(two, frame.slice(100, 50))
        return False

    monkeypatch.setattr(transaction, "keep_past", meanwhile)
    with pytest.raises(OutrunError, match="another machine"):
        put_in(one, frame.slice(100, 60))
    assert scan_bars(one).collect().height == 150
    # the refused commit left no file behind
    assert len([*(one.store / BARS).rglob("*.parquet")]) == list_history(one)["files"][-1]


def test_a_commit_whose_answer_was_lost_is_known_to_be_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space, frame = space_at(tmp_path, "lost"), walk(["A"])
    put_in(space, frame.head(100))
    write = DeltaTable.create_write_transaction

    def lost(table: Any, *words: Any, **more: Any) -> None:
        write(table, *words, **more)
        raise CommitFailedError("Transaction already exists")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lost)
    put_in(space, frame.slice(100, 50))
    assert store_version(space) == 1
    assert scan_bars(space).collect().height == 150


def test_a_bucket_that_is_not_there_is_told_in_three_parts(tmp_path: Path) -> None:
    (tmp_path / "klinepred.toml").write_text('store = "s3://nowhere/bars"\n')
    with pytest.raises(KlinepredError) as told:
        put_in(Workspace(tmp_path), walk(["A"]))
    assert "s3://nowhere/bars" in told.value.summary
    assert "does not exist" in told.value.got


@pytest.mark.parametrize(
    "address",
    ["s3://id:secret@desk/bars", "s3://desk/../bars", "s3://desk/a b", "s3://", "gs://desk/bars", "/data", "s3://Desk"],
)
def test_an_address_that_is_none_is_refused(typed: Typed, tmp_path: Path, address: str) -> None:
    code, _, err = typed("init", str(tmp_path / "new"), "--store", address)
    assert code == 2
    assert "write it like s3://desk/bars" in err
    assert "secret" not in err
    assert not (tmp_path / "new" / "klinepred.toml").exists()


def test_a_key_of_the_file_that_means_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "klinepred.toml").write_text('stor = "s3://desk/bars"\n')
    with pytest.raises(UsageError, match="did you mean store"):
        read_places(tmp_path)


def test_a_workspace_is_a_folder_and_is_told_how_bars_lie_elsewhere(typed: Typed) -> None:
    code, _, err = typed("bars", "list", "-w", "s3://desk/space")
    assert code == 2
    assert "workspace s3://desk/space" in err
    assert "klinepred init DIR --store" in err


def test_init_writes_the_place_down_and_does_not_leave_bars_behind(typed: Typed, tmp_path: Path) -> None:
    assert typed("init", str(tmp_path), "--store", f"s3://{BUCKET}/init/")[0] == 0
    assert Workspace(tmp_path).store == ObjectPath(f"s3://{BUCKET}/init")
    assert typed("init", str(tmp_path), "--artifacts", f"s3://{BUCKET}/runs")[0] == 0
    assert read_places(tmp_path) == Places(f"s3://{BUCKET}/init", f"s3://{BUCKET}/runs")
    code, _, err = typed("init", str(tmp_path), "--store", f"s3://{BUCKET}/other")
    assert code == 2
    assert "a workspace without bars" in err


def test_folders_of_objects_are_listed_like_folders(tmp_path: Path) -> None:
    space = space_at(tmp_path, "listed")
    put_in(space, walk(["A"]))
    bars = space.store / BARS
    assert isinstance(bars, ObjectPath)
    assert sorted(path.name for path in bars.iterdir()) == ["_delta_log", "month=2026-06"]
    assert bars.is_dir()
    assert not bars.is_file()
    assert list_versions(bars) == [0]
    (name,) = [name for name in bars.sizes() if name.endswith(".parquet")]
    assert name.startswith("month=2026-06/part-")
    assert (bars / name).stat().st_size == bars.sizes()[name]
    with pytest.raises(FileNotFoundError):
        (bars / "none").stat()
    with pytest.raises(FileNotFoundError):
        (bars / "none").read_bytes()
