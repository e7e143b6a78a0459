"""In: bars that should not have come, or should go. Out: the store as before, as a new version; nothing lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from klinepred.bars import tables
from klinepred.bars.clocks import bound_version
from klinepred.bars.history import list_history
from klinepred.bars.ingest import ingest
from klinepred.bars.store import list_symbols, scan_bars, store_version, stored_clocks
from klinepred.bars.tables import SYMBOLS
from klinepred.bars.undo import delete_bars, restore_bars
from klinepred.calendar import Clock
from klinepred.errors import StoreError
from klinepred.paths import Workspace
from tests.bars.made import NOW, ROUND, XNYS, from_files, utc, walk


def _take(space: Workspace, frame: pl.DataFrame, name: str = "bars", **options: object) -> int:
    space.root.mkdir(exist_ok=True)
    path = space.root / f"{name}.parquet"
    frame.write_parquet(path)
    return ingest(from_files(path, **options), space, now=NOW).exit_code


def _stored(space: Workspace, as_of: int | None = None) -> pl.DataFrame:
    return scan_bars(space, as_of=as_of).drop("calendar").collect()


def _wrong(frame: pl.DataFrame) -> pl.DataFrame:
    """Prices a little off on every 30th bar: revisions nobody can tell from true ones."""
    odd = pl.int_range(pl.len()) % 30 == 0
    return frame.with_columns(
        pl.when(odd).then(pl.col(name) * 1.003).otherwise(name).alias(name) for name in ("open", "high", "low", "close")
    )


def test_a_bad_ingest_is_undone_to_the_bar(tmp_path: Path) -> None:
    space, frame = Workspace(tmp_path), walk(["A", "B"], days=70)
    _take(space, frame)
    good = _stored(space)
    assert _take(space, pl.concat([_wrong(frame), walk(["C"], days=70, seed=9)]), "bad") == 0
    bad = _stored(space)
    assert not bad.equals(good)
    done = restore_bars(space, 0)
    assert _stored(space).equals(good)
    assert (done.before, done.after) == (1, 2)
    wrong = (frame.height // 2 + 29) // 30  # of each symbol
    half = frame.height // 2
    changed = bad.filter(pl.col("symbol") != "C").join(good, on=list(good.columns), how="anti")
    assert sum(done.rows["changed"]) == changed.height
    assert wrong * 2 - 2 <= changed.height <= wrong * 2
    assert done.rows.select("symbol", "before", "after").rows() == [
        ("A", half, half),
        ("B", half, half),
        ("C", done.rows["before"][2], 0),
    ]
    assert _stored(space, as_of=1).equals(bad)
    restore_bars(space, 1)
    assert _stored(space).equals(bad)
    assert [*list_history(space)["operation"]] == ["ingest", "ingest", "restore", "restore"]


def test_a_restore_that_changes_nothing_is_no_commit_and_a_rehearsal_neither(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    frame = walk(["A", "B"], days=5)
    _take(space, frame.head(234))
    _take(space, frame)
    done = restore_bars(space, 1)
    assert (done.before, done.after, done.rows.height) == (1, 1, 0)
    plan = restore_bars(space, 0, rehearse=True)
    assert plan.rows.rows() == [("A", 390, 234, 0), ("B", 390, 0, 0)]
    assert store_version(space) == 1


def test_a_restored_symbol_has_the_clock_it_had(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    _take(space, walk(["A", "B"]))
    delete_bars(space, ["A"])
    _take(space, walk(["A"], clock=ROUND), "round", calendar="24/7")
    assert stored_clocks(space) == {"A": ROUND, "B": XNYS}
    assert list_symbols(space, as_of=0)["calendar"].to_list() == ["XNYS", "XNYS"]
    assert set(scan_bars(space, as_of=0).collect()["calendar"].cast(pl.String)) == {"XNYS"}
    restore_bars(space, 0)
    assert stored_clocks(space) == {"A": XNYS, "B": XNYS}
    assert _take(space, walk(["A"])) == 0
    assert stored_clocks(space, as_of=2) == {"A": ROUND, "B": XNYS}
    assert [row["source"][:16] for row in list_symbols(space, as_of=2).to_dicts()] == [
        "file round.parqu",
        "file bars.parque",
    ]


def test_a_symbol_without_bars_has_no_clock_and_an_unneeded_one_neither(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    _take(space, walk(["A"]))
    _take(space, walk(["B"]))
    delete_bars(space, ["A"], end=utc("2026-06-02T00:00:00"))
    assert set(stored_clocks(space)) == {"A", "B"}
    delete_bars(space, ["A"])
    assert set(stored_clocks(space)) == {"B"}
    delete_bars(space, ["B"])
    assert stored_clocks(space) == {}
    assert list_symbols(space).is_empty()
    restore_bars(space, 0)
    assert set(stored_clocks(space)) == {"A"}
    assert set(stored_clocks(space, as_of=1)) == {"A", "B"}


def test_a_change_of_clocks_means_nothing_until_the_bars_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = Workspace(tmp_path)
    _take(space, walk(["A", "B"]))
    delete_bars(space, ["A"])
    _take(space, walk(["A"], clock=ROUND), "round", calendar="24/7")
    before = _stored(space)

    put = tables.put

    def killed(folder: Path, name: str, **words: Any) -> int:
        if name != SYMBOLS:
            raise KeyboardInterrupt
        return put(folder, name, **words)

    with monkeypatch.context() as patch:
        patch.setattr(tables, "put", killed)
        with pytest.raises(KeyboardInterrupt):
            restore_bars(space, 0)  # the symbols are written, the bars are not
    assert tables.scan_table(space.data, SYMBOLS).collect().row(0)[:2] == ("A", "XNYS")
    assert stored_clocks(space)["A"] == ROUND
    assert _stored(space).equals(before)
    assert _take(space, walk(["C"], days=5), "more") == 0
    assert stored_clocks(space) == {"A": ROUND, "B": XNYS, "C": XNYS}
    assert _take(space, walk(["A"], clock=ROUND), "round", calendar="24/7") == 0
    assert bound_version(space.data) == tables.read_parts(space.data, SYMBOLS)[0]


def test_a_store_of_an_older_release_finds_its_clocks_by_the_time_of_the_commit(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    _take(space, walk(["A"]))
    delete_bars(space, ["A"])
    _take(space, walk(["A"], clock=ROUND), "round", calendar="24/7")
    for path in (space.data / "bars" / "_delta_log").glob("*.json"):
        path.write_text(path.read_text().replace('"klinepred.symbols"', '"klinepred.nothing"'))
    assert stored_clocks(space, as_of=0) == {"A": XNYS}
    assert stored_clocks(space, as_of=2) == {"A": ROUND}
    assert stored_clocks(space) == {"A": Clock("24/7")}


def test_a_delete_takes_exactly_the_span_of_the_symbols(tmp_path: Path) -> None:
    space, frame = Workspace(tmp_path), walk(["A", "B", "it's"], days=70)
    _take(space, frame)
    low, high = utc("2026-06-30T15:00:00"), utc("2026-07-02T15:00:00")
    gone = pl.col("symbol").is_in(["A", "it's"]) & pl.col("ts").is_between(low, high, closed="left")
    plan = delete_bars(space, ["A", "it's"], start=low, end=high, rehearse=True)
    assert plan.gone == frame.filter(gone).height == 312
    assert store_version(space) == 0
    done = delete_bars(space, ["A", "it's"], start=low, end=high, expect=312)
    assert (done.gone, done.after) == (312, 1)
    assert _stored(space).equals(frame.filter(~gone))
    assert _stored(space, as_of=0).equals(frame)
    assert _take(space, frame) == 0
    assert _stored(space).equals(frame)


def test_a_delete_of_other_bars_than_were_counted_is_refused(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    _take(space, walk(["A"]))
    with pytest.raises(StoreError, match="another ingest was faster"):
        delete_bars(space, ["A"], expect=233)
    with pytest.raises(StoreError, match="no data for X"):
        delete_bars(space, ["A", "X"])
    assert store_version(space) == 0
    assert delete_bars(space, ["A"], start=utc("2027-01-01T00:00:00")).gone == 0
    assert store_version(space) == 0


def test_history_tells_of_each_version(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    _take(space, walk(["A", "B"]))
    _take(space, _wrong(walk(["A", "B"])))
    delete_bars(space, ["B"])
    restore_bars(space, 0)
    rows = list_history(space)
    assert rows.select("version", "operation", "new", "revised", "deleted", "rows").rows() == [
        (0, "ingest", 468, 0, None, 468),
        (1, "ingest", 0, 16, None, 468),
        (2, "delete", None, None, 234, 234),
        (3, "restore", None, None, None, 468),
    ]
    assert rows["source"][0].startswith("file bars.parquet sha256:")
    assert rows["source"].to_list()[2:] == ["B", "version 0"]
    assert rows["readable"].all()
    assert rows["time"].is_sorted()
    assert set(rows["release"]) == {"0.1.0"}


def test_history_tells_of_a_rescaling_and_a_restore_takes_it_back(tmp_path: Path) -> None:
    space, frame = Workspace(tmp_path), walk(["A"], days=5)
    _take(space, frame.head(234))
    split = frame.with_columns(pl.col("open", "high", "low", "close") / 4.0, pl.col("volume") * 4.0)
    assert _take(space, split.slice(156), "split", rescale="always") == 0
    row = list_history(space).row(1, named=True)
    assert row["operation"] == "rescale"
    assert [one["factor"] for one in json.loads(row["rescaled"])] == ["1/4"]
    restore_bars(space, 0)
    assert _stored(space).equals(frame.head(234))
