"""In: stores with versions that somebody names and others. Out: a vacuum that removes what nobody needs, only that."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars import tables
from klinepred.bars.commits import read_commits
from klinepred.bars.history import list_history
from klinepred.bars.parts import MONTH
from klinepred.bars.store import keep_symbols, scan_bars
from klinepred.bars.tables import BARS, scan_table
from klinepred.bars.vacuum import vacuum
from klinepred.errors import StoreError
from klinepred.paths import Workspace
from tests.bars.made import XNYS, walk
from tests.conftest import Typed


def _store(root: Path, versions: int = 6) -> Workspace:
    """Each version has other bars: n rows in version n - 1."""
    space = Workspace(root)
    keep_symbols(space, ["A"], clock=XNYS, source="by hand")
    bars = walk(["A"], days=1).with_columns(pl.lit("2026-06").alias(MONTH))
    for number in range(versions):
        tables.overwrite(space.data, BARS, bars.head(number + 1), note={"klinepred.source": "by hand"})
    return space


def _age(space: Workspace, days: dict[int, int]) -> None:
    """Date commits of the bars back by some days."""
    for version, back in days.items():
        path = space.data / BARS / "_delta_log" / f"{version:020}.json"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["timestamp"] -= back * 86_400_000
        path.write_text("\n".join(json.dumps(line) for line in lines))


def _readable(space: Workspace) -> list[int]:
    return list_history(space).filter("readable")["version"].to_list()


def test_what_is_latest_young_or_named_stays_readable_and_nothing_else(tmp_path: Path) -> None:
    space = _store(tmp_path)
    _age(space, {0: 90, 1: 80, 2: 70, 3: 60})
    found = vacuum(space, named={1: "model m", 99: "a run of another store"})
    # version 3 was the latest one when the last 30 days began
    assert found.kept == {1: "model m", 3: "young", 4: "young", 5: "latest"}
    assert found.lost == (0, 2)
    assert (len(found.files), found.orphans) == (2, 0)
    assert not any(path.exists() for path in found.files)
    assert _readable(space) == [1, 3, 4, 5]
    for version in (1, 3, 4, 5):
        assert scan_table(space.data, BARS, version).collect().height == version + 1
        assert scan_bars(space, as_of=version).collect().height == version + 1
    with pytest.raises(StoreError, match=r"version 2 (.|\n)*vacuum(.|\n)*history"):
        scan_table(space.data, BARS, 2)
    assert vacuum(space, named={1: "model m"}).files == ()


def test_a_rehearsal_removes_nothing(tmp_path: Path) -> None:
    space = _store(tmp_path)
    found = vacuum(space, named={}, keep_days=0, rehearse=True)
    assert (len(found.files), found.size > 0) == (5, True)
    assert all(path.exists() for path in found.files)
    assert _readable(space) == [0, 1, 2, 3, 4, 5]
    assert vacuum(space, named={}, keep_days=30).files == ()


def test_files_of_killed_writers_go_in_every_table(tmp_path: Path) -> None:
    space = _store(tmp_path, versions=2)
    strays = [space.data / "bars" / "month=2026-06" / "part-1.parquet", space.data / "symbols" / "part-2.parquet"]
    for path in strays:
        path.write_bytes(b"half a file")
    found = vacuum(space, named={})
    assert sorted(map(str, found.files)) == sorted(map(str, strays))
    assert found.orphans == 2
    assert not any(path.exists() for path in strays)
    assert _readable(space) == [0, 1]


def test_versions_brought_back_by_a_restore_share_files_with_what_is_vacuumed(tmp_path: Path) -> None:
    from klinepred.bars.undo import restore_bars

    space = _store(tmp_path, versions=3)
    restore_bars(space, 0)
    found = vacuum(space, named={}, keep_days=0, now=read_commits(space.data / BARS)[-1].time + timedelta(days=1))
    assert found.lost == (1, 2)
    assert _readable(space) == [0, 3]
    assert scan_table(space.data, BARS).collect().height == 1


def test_the_command_keeps_what_models_and_runs_name_and_asks_first(
    tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3
    from contextlib import closing

    space = _store(tmp_path)
    _age(space, dict.fromkeys(range(5), 90))
    model = space.trained / "m"
    model.mkdir(parents=True)
    (model / "bundle.json").write_text('{"provenance": {"store_version": 1}}')
    space.mlruns.mkdir()
    with closing(sqlite3.connect(space.mlruns / "mlflow.db")) as runs:
        runs.execute("create table runs (run_uuid text, name text)")
        runs.execute("create table tags (key text, value text, run_uuid text)")
        runs.execute("insert into runs values ('ab', 'first')")
        runs.execute("insert into tags values ('store_version', '2', 'ab'), ('other', 'x', 'ab')")
        runs.commit()
    line = ("bars", "vacuum", "-w", str(tmp_path), "--format", "csv")
    code, out, err = typed(*line, "--dry-run")
    assert (code, out.splitlines()) == (0, ["version,kept_for", "1,model m", "2,run first", "4,young", "5,latest"])
    assert "would remove 2 data files" in err
    assert "2 versions no longer readable (0, 3)" in err
    code, out, err = typed(*line)
    assert (code, out, len(_readable(space))) == (2, "", 6)
    assert "--yes" in err
    assert typed(*line, "--yes")[0] == 0
    assert _readable(space) == [1, 2, 4, 5]
    code, _, err = typed("bars", "show", "-w", str(tmp_path), "--as-of", "0")
    assert code == 1
    assert "klinepred bars vacuum" in err
    (model / "bundle.json").write_text("{")
    code, _, err = typed(*line, "--yes")
    assert code == 1
    assert "put it back from a backup" in err


def test_versions_that_runs_of_another_mlflow_store_name_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    from klinepred.training.named import named_versions

    uri = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    client = MlflowClient(tracking_uri=uri)
    run = client.create_run(client.create_experiment("e", artifact_location=str(tmp_path)), tags={"store_version": "7"})
    client.create_run("0")
    client.delete_run(run.info.run_id)
    assert named_versions(Workspace(tmp_path)) == {}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert named_versions(Workspace(tmp_path)) == {7: f"run {run.info.run_id}"}
