"""In: bars on another basis than those stored. Out: the older ones follow in one commit, or the reason is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable

from klinepred.bars import tables
from klinepred.bars.check import check_bars
from klinepred.bars.ingest import ingest
from klinepred.bars.report import IngestReport
from klinepred.bars.store import scan_bars, store_version
from klinepred.cli import main
from klinepred.errors import StoreError
from klinepred.paths import Workspace
from klinepred.schema import BAR_SCHEMA, PRICES
from tests.bars.made import NOW, XNYS, from_files, utc, walk

DAYS = 5


def scaled(frame: pl.DataFrame, price: float, volume: float = 1.0) -> pl.DataFrame:
    return frame.with_columns(*(pl.col(name) * price for name in PRICES), pl.col("volume") * volume)


def stored(space: Workspace) -> pl.DataFrame:
    return scan_bars(space).select(BAR_SCHEMA.keys()).collect()


def take(space: Workspace, *frames: pl.DataFrame, **more: object) -> IngestReport:
    """Each frame as a file of its own, in this order."""
    paths = []
    for number, frame in enumerate(frames):
        paths.append(space.root / f"{number}.parquet")
        space.root.mkdir(parents=True, exist_ok=True)
        frame.write_parquet(paths[-1])
    return ingest(from_files(*paths, **more), space, now=NOW)


def record(space: Workspace) -> list[dict[str, Any]]:
    entry = DeltaTable(space.data / "bars").history(1)[0]
    out: list[dict[str, Any]] = json.loads(entry["klinepred.rescaled"])
    return out


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    space = Workspace(tmp_path)
    take(space, walk(["A", "B"], days=DAYS))
    return space


def of(frame: pl.DataFrame, symbol: str = "A") -> pl.DataFrame:
    return frame.filter(pl.col("symbol") == symbol)


def test_without_the_option_the_symbol_is_refused_and_the_message_names_option_and_factor(space: Workspace) -> None:
    before = stored(space)
    report = take(space, scaled(of(before).tail(100), 0.25, 4.0))
    (row,) = report.symbols
    assert (row.status, report.exit_code, report.version) == ("rejected", 1, 0)
    assert "1/4 of the stored ones on 100 of 100 common bars" in row.message
    assert "multiply the stored bars that did not come by 1/4, pass --rescale" in row.message
    assert stored(space).equals(before)
    assert take(space, scaled(of(before).tail(100), 0.25, 4.0), rescale="never").symbols[0].status == "rejected"


def test_a_split_moves_older_prices_and_volumes_in_one_commit_with_a_record(space: Workspace) -> None:
    before = stored(space)
    later = of(walk(["A"], days=8)).slice(390)  # two more days, in new shares
    received = pl.concat([scaled(of(before).slice(290), 0.25, 4.0), scaled(later, 0.25, 4.0)])
    report = take(space, received, rescale="always")
    (row,) = report.symbols
    assert (row.status, row.new, row.revised, report.version) == ("ok", later.height, 100, 1)
    want = pl.concat([scaled(pl.concat([of(before), later]), 0.25, 4.0), of(before, "B")])
    assert stored(space).equals(want)
    assert scan_bars(space, as_of=0).select(BAR_SCHEMA.keys()).collect().equals(before)
    assert row.rescaled is not None
    want_record = {
        "symbol": "A",
        "factor": "1/4",
        "price_factor": 0.25,
        "volume_factor": 4.0,
        "kind": "split",
        "evidence": "overlap",
        "same": 100,
        "common": 100,
        "bars": 290,
        "from": "2026-06-01T13:30:00Z",
        "to": "2026-06-04T18:05:00Z",
    }
    assert record(space) == [want_record]
    assert report.to_dict()["symbols"][0]["rescaled"] == want_record
    assert "290 stored bars that did not come are rescaled" in row.message
    assert any(line.startswith("A: 290 stored bars") and "--as-of 0" in line for line in report.remarks)


def test_pence_for_pounds_leave_volumes_alone(space: Workspace) -> None:
    before = stored(space)
    report = take(space, scaled(of(before).slice(290), 100.0), rescale="always")
    assert report.symbols[0].rescaled is not None
    assert report.symbols[0].rescaled.kind == "unit"
    assert stored(space).equals(pl.concat([scaled(of(before), 100.0), of(before, "B")]))


def test_volumes_that_say_neither_are_refused(space: Workspace) -> None:
    before = stored(space)
    report = take(space, scaled(of(before).slice(290), 0.25, 2.0), rescale="always")
    assert report.symbols[0].status == "rejected"
    assert "volumes neither stayed nor changed by the inverse" in report.symbols[0].message
    assert stored(space).equals(before)


def test_an_unusual_factor_needs_many_bars(space: Workspace) -> None:
    before = stored(space)
    few = take(space, scaled(of(before).slice(380), 1.37), rescale="always")
    assert "no usual factor, and fewer than 20 bars show it" in few.symbols[0].message
    assert stored(space).equals(before)
    many = take(space, scaled(of(before).slice(360), 1.37), rescale="always")
    assert many.symbols[0].rescaled is not None
    assert of(stored(space))["close"].to_numpy() == pytest.approx(of(before)["close"].to_numpy() * 1.37, rel=1e-9)


@pytest.mark.parametrize("factor", [1 / 3, 1 / 7, 0.1, 0.01, 1.5, 1000.0])
def test_rescaled_bars_are_still_consistent_whatever_the_rounding(tmp_path: Path, factor: float) -> None:
    space = Workspace(tmp_path)
    frame = walk(["A"], days=DAYS, seed=5).with_columns(pl.col(name) / 3.0 for name in PRICES)
    flat = pl.int_range(pl.len()) % 3 == 0  # bars of one price: the tightest case
    frame = frame.with_columns(pl.when(flat).then("close").otherwise(name).alias(name) for name in PRICES)
    take(space, frame)
    take(space, scaled(frame.slice(290), factor), rescale="always")
    got = stored(space)
    check_bars(got, clock=XNYS)
    assert got["close"].to_numpy() == pytest.approx(frame["close"].to_numpy() * factor, rel=1e-12)
    assert (got["open"] == got["close"]).sum() >= flat_count(frame)


def flat_count(frame: pl.DataFrame) -> int:
    return int((frame["open"] == frame["close"]).sum())


def test_a_step_by_a_usual_factor_without_any_evidence_is_stored_and_said_loudly(space: Workspace) -> None:
    later = scaled(of(walk(["A"], days=10)).slice(390), 0.25)
    report = take(space, later)
    assert (report.symbols[0].status, report.symbols[0].new) == ("ok", later.height)
    last, first = of(stored(space))["close"][389], later["open"][0]
    (line,) = report.remarks[-1:]
    assert line.startswith(
        f"A: the open of 2026-06-08 13:30Z, {first:.6g}, is about 1/4 of the close before it, {last:.6g}"
    )
    assert "klinepred bars check --symbols A" in line


def test_adjusted_history_over_a_stored_split_rescales_the_older_part_only(space: Workspace) -> None:
    smooth = of(walk(["A"], days=12))
    assert smooth.height == 10 * 78
    raw = pl.concat([scaled(smooth.head(390), 4.0, 0.25), smooth.slice(390)])
    folder = Workspace(space.root / "raw")
    take(folder, raw)
    received = smooth.slice(200, 300)  # 190 bars before the split, 110 after it
    report = take(folder, received, rescale="always")
    assert (report.symbols[0].revised, report.symbols[0].unchanged) == (190, 110)
    assert record(folder)[0]["bars"] == 200
    got = stored(folder)
    assert got["close"].to_numpy() == pytest.approx(smooth["close"].to_numpy(), rel=1e-12)
    assert take(folder, received, rescale="always").symbols[0].status == "unchanged"


def test_stored_bars_that_did_not_come_between_the_sides_go_with_their_own_level(space: Workspace) -> None:
    smooth = of(walk(["A"], days=5))
    raw = pl.concat([scaled(smooth.head(200), 4.0, 0.25), smooth.slice(200)])
    folder = Workspace(space.root / "raw")
    take(folder, raw)
    hole = pl.int_range(pl.len()).is_between(195, 204)
    report = take(folder, smooth.filter(~hole), rescale="always")
    assert report.symbols[0].revised == 195
    assert record(folder)[0]["bars"] == 5
    assert stored(folder)["close"].to_numpy() == pytest.approx(smooth["close"].to_numpy(), rel=1e-12)


def test_raw_history_over_stored_adjusted_one_is_refused(space: Workspace) -> None:
    smooth = of(stored(space))
    raw = pl.concat([scaled(smooth.head(200), 4.0, 0.25), smooth.slice(200)])
    report = take(space, raw, rescale="always")
    assert report.symbols[0].status == "rejected"
    assert "on the older ones only, and the received ones jump there themselves" in report.symbols[0].message
    assert of(stored(space)).equals(smooth)


def test_a_stretch_on_another_basis_between_equal_bars_is_refused(space: Workspace) -> None:
    smooth = of(stored(space))
    odd = pl.concat([smooth.head(100), scaled(smooth.slice(100, 100), 4.0), smooth.slice(200)])
    report = take(space, odd, rescale="always")
    assert "between bars that are equal" in report.symbols[0].message
    assert of(stored(space)).equals(smooth)


def test_a_failed_write_leaves_everything_on_the_old_basis_and_a_second_try_completes_it(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stored(space)
    received = scaled(of(before).slice(290), 0.25, 4.0)

    def fail(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables, "put", fail)
    with pytest.raises(StoreError, match="No space left"):
        take(space, received, rescale="always")
    monkeypatch.undo()
    assert stored(space).equals(before)
    assert take(space, received, rescale="always").symbols[0].status == "ok"
    assert of(stored(space)).equals(scaled(of(before), 0.25, 4.0))


def test_other_symbols_of_the_delivery_are_taken_in_by_the_same_commit(tmp_path: Path) -> None:
    space, more = Workspace(tmp_path), walk(["A", "B", "C"], days=8)
    take(space, more.filter((pl.col("ts") < utc("2026-06-06")) & (pl.col("symbol") != "C")))
    late = more.filter(pl.col("ts") >= utc("2026-06-05"))
    received = pl.concat([scaled(of(late), 0.1, 10.0), of(late, "B"), of(late, "C")])
    changed = (pl.col("symbol") == "B") & (pl.col("ts") == utc("2026-06-05T15:00:00"))
    received = received.with_columns(volume=pl.when(changed).then(7.0).otherwise("volume"))
    report = take(space, received, rescale="always")
    assert report.version == 1
    assert [(row.symbol, row.status, row.revised) for row in report.symbols] == [
        ("A", "ok", 78), ("B", "ok", 1), ("C", "ok", 0),
    ]  # fmt: skip
    got = stored(space)
    assert of(got).height == of(got, "B").height == 390 + 78
    assert of(got)["close"].to_numpy() == pytest.approx(of(more)["close"].to_numpy() / 10.0, rel=1e-12)
    assert of(got, "B").filter(changed)["volume"].to_list() == [7.0]


def test_the_command_has_the_option_and_says_it_on_stderr(space: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    path = space.root / "new.parquet"
    scaled(of(stored(space)).slice(290), 0.5, 2.0).write_parquet(path)
    words = ["ingest", str(path), "-w", str(space.root), "--now", "2026-11-30", "--format", "json"]
    assert main(words) == 1
    assert main([*words, "--no-rescale"]) == 1
    assert store_version(space) == 0
    capsys.readouterr()
    assert main([*words, "--rescale"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["symbols"][0]["rescaled"]["factor"] == "1/2"
    assert "warning: A: 290 stored bars that did not come are rescaled" in err
    assert "prices times 1/2, volumes times 2 (100 of 100 common bars)" in err
