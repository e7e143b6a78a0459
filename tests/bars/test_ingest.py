"""In: files taken in again, in part, changed, by another calendar. Out: the store grows, never shrinks, never jumps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from deltalake import DeltaTable

from klinepred.bars import ingest as room
from klinepred.bars import tables
from klinepred.bars.delivery import Delivery, Failure
from klinepred.bars.ingest import ingest
from klinepred.bars.lock import writer
from klinepred.bars.report import IngestReport
from klinepred.bars.store import has_bars, list_symbols, scan_bars, store_version
from klinepred.calendar import Clock
from klinepred.errors import StoreError, UsageError
from klinepred.paths import Workspace
from klinepred.schema import BAR_SCHEMA, PRICES
from klinepred.settings import DataSettings
from tests.bars.made import NOW, flat, from_files, rows, utc, walk


def _stored(space: Workspace) -> pl.DataFrame:
    return scan_bars(space).select(BAR_SCHEMA.keys()).collect()


def _take(space: Workspace, frame: pl.DataFrame, name: str = "bars.parquet", **more: object) -> IngestReport:
    space.root.mkdir(parents=True, exist_ok=True)
    path = space.root / name
    frame.write_parquet(path)
    return ingest(from_files(path, **more), space, now=NOW)


def test_the_same_file_twice_is_unchanged_and_makes_no_version(tmp_path: Path) -> None:
    space, frame = Workspace(tmp_path), walk(["A", "B"])
    first, second = _take(space, frame), _take(space, frame)
    assert (first.version, second.version) == (0, 0)
    assert [row.status for row in second.symbols] == ["unchanged", "unchanged"]
    assert [row.unchanged for row in second.symbols] == [234, 234]
    assert _stored(space).equals(frame)
    assert first.exit_code == second.exit_code == 0


def test_a_shorter_answer_never_shrinks_the_store(tmp_path: Path) -> None:
    space, frame = Workspace(tmp_path), walk(["A", "B"])
    _take(space, frame)
    report = _take(space, frame.filter(pl.col("symbol") == "A").filter(pl.int_range(pl.len()) % 7 < 3))
    assert _stored(space).equals(frame)
    assert (report.symbols[0].received, report.symbols[0].expected, report.symbols[0].missing) == (102, 234, 132)


def test_revised_bars_are_taken_over_and_new_ones_added_in_one_commit(tmp_path: Path) -> None:
    space, frame = Workspace(tmp_path), walk(["A", "B", "it's"], days=50)
    old = frame.filter(pl.col("ts") < utc("2026-07-10"))
    _take(space, old)
    spot = (pl.col("symbol") == "it's") & (pl.col("ts") == utc("2026-07-08T15:00:00"))
    assert frame.filter(spot).height == 1
    new = frame.with_columns(volume=pl.when(spot).then(77.0).otherwise("volume")).filter(
        pl.col("ts") > utc("2026-06-20")
    )
    report = _take(space, new)
    assert report.version == 1
    assert [row.revised for row in report.symbols] == [0, 0, 1]
    want = frame.with_columns(volume=pl.when(spot).then(77.0).otherwise("volume"))
    assert _stored(space).equals(want)
    assert scan_bars(space, as_of=0).select(BAR_SCHEMA.keys()).collect().equals(old)
    assert report.to_dict()["symbols"][0]["new"] == frame.height // 3 - old.height // 3


def test_a_symbol_is_not_taken_in_by_a_second_calendar(tmp_path: Path) -> None:
    space, frame = Workspace(tmp_path), walk(["A"])
    _take(space, frame)
    report = _take(space, pl.concat([frame, walk(["B"])]), calendar="XTSE")
    assert [(row.symbol, row.status) for row in report.symbols] == [("A", "rejected"), ("B", "ok")]
    assert "--calendar XNYS" in report.symbols[0].message
    assert report.exit_code == 3
    assert list_symbols(space).select("symbol", "calendar").rows() == [("A", "XNYS"), ("B", "XTSE")]


def test_a_split_is_refused_and_the_store_left_alone(tmp_path: Path) -> None:
    space, frame = Workspace(tmp_path), walk(["A"])
    _take(space, frame)
    report = _take(space, frame.with_columns(pl.col(name) / 4.0 for name in PRICES))
    assert report.symbols[0].status == "rejected"
    assert "1/4" in report.symbols[0].message
    assert report.exit_code == 1
    assert _stored(space).equals(frame)


def test_quarantined_rows_are_kept_once_with_their_source(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    bad = rows(flat("A", "2026-06-01T20:00:00"), flat("A", "2026-06-01T13:32:00"))
    frame = pl.concat([walk(["A"], days=1), bad])
    for _ in range(2):
        report = _take(space, frame)
        assert [(row.ts, row.reason) for row in report.symbols[0].quarantined] == [
            (utc("2026-06-01T13:32:00"), "not on the 5-minute grid"),
            (utc("2026-06-01T20:00:00"), "outside the trading sessions"),
        ]
    kept = pl.read_delta(str(space.data / "quarantine"))
    assert kept.height == 2
    assert kept["source"].str.starts_with("file bars.parquet sha256:").all()


def test_the_commit_tells_its_source(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    _take(space, walk(["A"]))
    entry = DeltaTable(space.data / "bars").history(1)[0]
    assert entry["klinepred.source"].startswith("file bars.parquet sha256:")
    assert entry["klinepred.new"] == "234"


def test_start_and_end_are_days_of_the_venue_both_included(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    _take(
        space,
        walk(["JP"], start="2026-05-31", days=8, clock=Clock("XTKS")),
        calendar="XTKS",
        start="2026-06-02",
        end="2026-06-03",
    )
    stamps = _stored(space)["ts"]
    assert (stamps[0], stamps[-1]) == (utc("2026-06-02T00:00:00"), utc("2026-06-03T06:25:00"))


def test_a_huge_delivery_is_cut_by_symbol_and_stores_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = walk(["A", "B", "C", "D", "E"])
    mixed = frame.sample(fraction=1.0, shuffle=True, seed=3)
    monkeypatch.setattr(room, "BATCH_ROWS", 500)
    for name, each in (("grouped", frame), ("mixed", mixed)):
        space = Workspace(tmp_path / name)
        report = _take(space, each)
        assert report.version == 2
        assert [row.new for row in report.symbols] == [234] * 5
        assert _stored(space).equals(frame)


def _deliver(*deliveries: Delivery) -> object:
    def fetch(*_: object, **__: object) -> Iterator[Delivery]:
        return iter(deliveries)

    return fetch


def test_several_deliveries_of_a_symbol_are_one_line_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space, frame = Workspace(tmp_path), walk(["A"])
    parts = [frame.slice(0, 100), frame.slice(90, 60), frame.slice(160, 74)]
    monkeypatch.setattr(room, "arrivals", _deliver(*(Delivery(part, "test") for part in parts)))
    report = ingest(DataSettings(symbols=("A",)), space, now=NOW)
    row = report.symbols[0]
    assert (row.received, row.new, row.unchanged) == (234, 224, 10)
    assert (row.expected, row.missing) == (234, 10)
    assert (row.first_ts, row.last_ts) == (frame["ts"][0], frame["ts"][-1])


@pytest.mark.parametrize(("failed", "code"), [((), 0), (("B",), 3), (("A", "B"), 1)])
def test_the_exit_code_says_how_many_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: tuple[str, ...], code: int
) -> None:
    frame = walk(["A", "B"]).filter(~pl.col("symbol").is_in(list(failed)))
    failures = {name: Failure("rate-limited", "429 on every try") for name in failed}
    monkeypatch.setattr(room, "arrivals", _deliver(Delivery(frame, "test", failures)))
    report = ingest(DataSettings(symbols=("A", "B")), Workspace(tmp_path), now=NOW)
    assert report.exit_code == code
    assert {row.symbol for row in report.symbols if row.status == "rate-limited"} == set(failed)
    json.dumps(report.to_dict(), allow_nan=False)


def test_an_empty_store_stays_without_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = {"A": Failure("unknown-symbol", "Yahoo does not know it")}
    monkeypatch.setattr(room, "arrivals", _deliver(Delivery(pl.DataFrame(schema=BAR_SCHEMA), "test", failures)))
    report = ingest(DataSettings(symbols=("A",)), Workspace(tmp_path), now=NOW)
    assert (report.version, report.exit_code) == (None, 1)
    assert store_version(Workspace(tmp_path)) is None
    with pytest.raises(StoreError, match="klinepred ingest"):
        scan_bars(Workspace(tmp_path))


def test_a_held_store_names_the_holder(tmp_path: Path) -> None:
    import os

    space = Workspace(tmp_path)
    walk(["A"]).write_parquet(tmp_path / "a.parquet")
    with writer(space.data), pytest.raises(StoreError, match=f"process {os.getpid()}"):
        ingest(from_files(tmp_path / "a.parquet"), space, now=NOW, wait_s=0.2)
    assert ingest(from_files(tmp_path / "a.parquet"), space, now=NOW).exit_code == 0


def test_a_file_in_the_place_of_the_data_folder_is_one_message(tmp_path: Path) -> None:
    walk(["A"]).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "data").write_text("not a folder")
    with pytest.raises(StoreError, match="can be written"):
        ingest(from_files(tmp_path / "a.parquet"), Workspace(tmp_path), now=NOW)


def test_what_was_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        ingest(from_files(tmp_path / "nope.csv"), Workspace(tmp_path), now=NOW)
    with pytest.raises(UsageError, match="at least one file"):
        ingest(from_files(), Workspace(tmp_path), now=NOW)
    with pytest.raises(UsageError, match="at least one symbol"):
        ingest(DataSettings(), Workspace(tmp_path), now=NOW)
    with pytest.raises(UsageError, match="XNYZ"):
        ingest(from_files(tmp_path, calendar="XNYZ"), Workspace(tmp_path), now=NOW)


def test_absent_symbols_and_versions_are_named(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    _take(space, walk(["AAPL", "MSFT"]))
    with pytest.raises(StoreError, match="did you mean AAPL"):
        scan_bars(space, symbols=["AAPX"])
    with pytest.raises(StoreError, match="version 7"):
        scan_bars(space, as_of=7)
    assert has_bars(space) == {"AAPL", "MSFT"}


def test_a_range_reads_exactly_that_range(tmp_path: Path) -> None:
    space, frame = Workspace(tmp_path), walk(["A", "B"], days=70)
    _take(space, frame)
    low, high = utc("2026-06-30T15:00:00"), utc("2026-07-01T15:00:00")
    got = scan_bars(space, symbols=["B"], start=low, end=high).select(BAR_SCHEMA.keys()).collect()
    assert got.equals(frame.filter((pl.col("symbol") == "B") & (pl.col("ts") >= low) & (pl.col("ts") < high)))


def test_a_write_that_fails_leaves_old_bars_and_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space, frame = Workspace(tmp_path), walk(["A"], days=40)
    old = frame.head(100)
    _take(space, old)
    before = sorted(space.data.glob("bars/**/*"))

    def full(table: Path, **_: object) -> None:
        assert len(sorted(table.glob("**/*.parquet"))) == 3  # June, and what was written of June and July
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables, "commit", lambda table, **words: full(table) if table.name == "bars" else 0)
    with pytest.raises(StoreError, match="No space left"):
        _take(space, frame)
    assert sorted(space.data.glob("bars/**/*")) == before
    monkeypatch.undo()
    assert _stored(space).equals(old)
    assert _take(space, frame).exit_code == 0
    assert _stored(space).equals(frame)


def test_a_disk_without_room_is_said_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(StoreError, match="No space left"):
        _take(Workspace(tmp_path), walk(["A"]))
    assert not any(tmp_path.glob("data/**/*.parquet"))


@pytest.mark.parametrize("name", ["kline été/№ 1", "100% a#b?c", "run=3/month=1999-01", "a'b\"c"])
def test_a_workspace_of_any_name_works(tmp_path: Path, name: str) -> None:
    space, frame = Workspace(tmp_path / name), walk(["A"], days=40)
    _take(space, frame.head(500))
    report = _take(space, frame)
    assert (report.symbols[0].new, report.symbols[0].unchanged) == (frame.height - 500, 500)
    assert _stored(space).equals(frame)


@pytest.mark.parametrize("name", ["50%20", "ä%41", "[x]"])
def test_a_workspace_whose_path_the_table_library_cannot_open_is_refused_in_words(tmp_path: Path, name: str) -> None:
    file = tmp_path / "A.csv"
    file.write_text("ts,open,high,low,close,volume\n2026-06-10T13:30:00Z,1,1,1,1,1\n2026-06-10T13:35:00Z,1,1,1,1,1\n")
    data = DataSettings(source="files", paths=(str(file),))
    with pytest.raises(StoreError, match="another name"):
        ingest(data, Workspace(tmp_path / name))
    assert ingest(data, Workspace(tmp_path / "50% ä#?{}")).exit_code == 0
