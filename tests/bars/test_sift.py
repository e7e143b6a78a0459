"""In: odd prices at ends, in the middle, over many files. Out: the same store whatever the order they came in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable

from klinepred.bars.ingest import ingest
from klinepred.bars.report import IngestReport
from klinepred.bars.sift import sift
from klinepred.bars.store import scan_bars, store_version
from klinepred.paths import Workspace
from klinepred.schema import BAR_SCHEMA, PRICES
from tests.bars.made import NOW, from_files, walk


def odd(frame: pl.DataFrame, spots: dict[int, float]) -> pl.DataFrame:
    """Prices of the bars at `spots` (row numbers) times the factor given there."""
    times = pl.lit(1.0)
    for spot, factor in spots.items():
        times = pl.when(pl.int_range(pl.len()) == spot).then(factor).otherwise(times)
    return frame.with_columns(
        pl.when(times == 1.0).then(pl.col(name)).otherwise((pl.col(name) * times).round(6)).alias(name)
        for name in PRICES
    )


def take(space: Workspace, *frames: pl.DataFrame) -> IngestReport:
    space.root.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, frame in enumerate(frames):
        paths.append(space.root / f"{number}.parquet")
        frame.write_parquet(paths[-1])
    return ingest(from_files(*paths), space, now=NOW)


def stored(space: Workspace) -> pl.DataFrame:
    return scan_bars(space).select(BAR_SCHEMA.keys()).collect()


def quarantined(space: Workspace) -> pl.DataFrame:
    return pl.read_delta(str(space.data / "quarantine"))


def test_an_isolated_error_is_set_aside_with_its_reason_and_counts_as_missing(tmp_path: Path) -> None:
    space, good = Workspace(tmp_path), walk(["A", "B"])
    report = take(space, odd(good, {100: 100.0}))
    row = report.symbols[0]
    assert (row.status, row.received, row.new, row.expected, row.missing) == ("ok", 234, 233, 234, 1)
    assert [(bad.ts, bad.reason) for bad in row.quarantined] == [
        (good["ts"][100], "100 times its neighbours: an isolated price error")
    ]
    assert stored(space).equals(good.filter(pl.int_range(pl.len()) != 100))
    again = take(space, odd(good, {100: 100.0}))
    assert (again.symbols[0].status, again.version) == ("unchanged", 0)
    assert quarantined(space).height == 1


def test_an_error_over_a_stored_bar_is_no_revision_and_no_split(tmp_path: Path) -> None:
    space, good = Workspace(tmp_path), walk(["A"])
    take(space, good)
    report = take(space, odd(good, {50: 0.01, 120: 100.0}).slice(40, 100))
    row = report.symbols[0]
    assert (row.status, row.unchanged, row.revised, len(row.quarantined)) == ("unchanged", 98, 0, 2)
    assert stored(space).equals(good)
    one = take(space, odd(good, {50: 100.0}).slice(50, 1))
    assert one.symbols[0].status == "rejected"
    assert "an isolated price error" in one.symbols[0].message
    assert stored(space).equals(good)


def test_a_corrected_bar_takes_its_place(tmp_path: Path) -> None:
    space, good = Workspace(tmp_path), walk(["A"])
    take(space, odd(good, {100: 100.0}))
    report = take(space, good.slice(90, 20))
    assert (report.symbols[0].new, report.symbols[0].unchanged) == (1, 19)
    assert stored(space).equals(good)
    late = take(space, odd(good, {100: 100.0}))
    assert (late.symbols[0].new, late.symbols[0].revised) == (0, 0)
    assert stored(space).equals(good)


def test_a_last_bar_in_doubt_is_stored_once_its_level_stays(tmp_path: Path) -> None:
    space, raw = Workspace(tmp_path), odd(walk(["A"]), dict.fromkeys(range(150, 234), 0.1))
    first = take(space, raw.head(152))
    row = first.symbols[0]
    assert (row.new, [bad.reason for bad in row.quarantined]) == (
        150,
        ["1/10 of the bar before it, with none after it: an unconfirmed price"] * 2,
    )
    second = take(space, raw.slice(152, 1))
    assert (second.symbols[0].status, second.symbols[0].new) == ("rejected", 0)
    third = take(space, raw.slice(153, 10))
    assert third.symbols[0].new == 10
    assert "3 bars set aside before for their price are confirmed" in third.symbols[0].message
    assert stored(space).equals(raw.head(163))
    assert DeltaTable(space.data / "bars").history(1)[0]["klinepred.confirmed"] == "3"


def test_a_last_bar_in_doubt_stays_out_where_the_level_goes_back(tmp_path: Path) -> None:
    space, good = Workspace(tmp_path), walk(["A"])
    take(space, odd(good, {150: 100.0}).head(151))
    take(space, good.slice(151))
    assert stored(space).equals(good.filter(pl.int_range(pl.len()) != 150))


def test_a_yahoo_like_repeat_of_everything_confirms_the_last_bar(tmp_path: Path) -> None:
    space, raw = Workspace(tmp_path), odd(walk(["A"]), dict.fromkeys(range(150, 234), 0.1))
    take(space, raw.head(151))
    report = take(space, raw.head(160))
    assert (report.symbols[0].new, report.symbols[0].unchanged) == (10, 150)
    assert "confirmed" not in report.symbols[0].message
    assert stored(space).equals(raw.head(160))


def test_a_stored_bar_that_later_bars_show_to_be_wrong_is_withdrawn_and_said(tmp_path: Path) -> None:
    space, good = Workspace(tmp_path), walk(["A"])
    bad = odd(good, {0: 100.0})
    take(space, bad.head(1))
    assert stored(space).height == 1
    take(space, bad.slice(1, 1))
    report = take(space, bad.slice(2, 20))
    assert stored(space).equals(good.slice(1, 21))
    assert "1 bars stored before turn out to be isolated price errors" in report.symbols[0].message
    assert quarantined(space)["close"].to_list() == [bad["close"][0]]
    assert scan_bars(space, as_of=0).collect().height == 1


def test_a_wrong_delivery_cannot_push_stored_bars_out(tmp_path: Path) -> None:
    space, good = Workspace(tmp_path), walk(["A"])
    sparse = pl.int_range(pl.len()) % 13 == 5
    sparse |= pl.int_range(pl.len()) == 6  # two in a row, so that the spacing is known
    take(space, good.filter(sparse))
    before = stored(space)
    report = take(space, odd(good, dict.fromkeys(range(234), 100.0)).filter(~sparse))
    assert stored(space).join(before, on=list(BAR_SCHEMA), how="semi").height == before.height
    assert report.symbols[0].new > 0
    assert any("about 100 times the close before it" in line for line in report.remarks)


SPOTS: dict[str, dict[int, float]] = {
    "single": {30: 100.0, 20: 0.01},
    "run": {38: 100.0, 39: 100.0, 40: 100.0},
    "ends": {0: 100.0, 1: 100.0, 58: 0.1, 59: 0.1},
    "level": dict.fromkeys(range(32, 60), 0.1),
    "level and error": {**dict.fromkeys(range(32, 60), 0.1), 31: 1000.0, 34: 10.0, 50: 100.0},
    "alternating": {30: 100.0, 32: 0.01, 33: 100.0, 35: 37.0},
    "short level": dict.fromkeys(range(18, 22), 100.0),
}


@pytest.mark.parametrize("name", SPOTS)
@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (4, 2, 5, 0, 3, 1)])
def test_one_file_or_many_in_any_order_end_in_the_same_store(tmp_path: Path, name: str, order: tuple[int, ...]) -> None:
    frame = odd(walk(["A"], days=1).head(60), SPOTS[name])
    whole, split = Workspace(tmp_path / "whole"), Workspace(tmp_path / "split")
    take(whole, frame)
    take(split, *(frame.slice(10 * n, 10) for n in order))
    assert stored(split).equals(stored(whole))


@pytest.mark.parametrize("seed", [1, 2])
def test_bars_that_come_one_by_one_in_any_order_end_in_the_same_store(tmp_path: Path, seed: int) -> None:
    frame = odd(walk(["A"], days=1).head(18), {0: 100.0, 6: 0.01, 7: 0.01, 12: 37.0})
    order = np.random.default_rng(seed).permutation(18)
    space = Workspace(tmp_path)
    for number in order:
        take(space, frame.slice(number, 1))
    assert stored(space).equals(frame.filter(~pl.int_range(pl.len()).is_in([0, 6, 7, 12])))


def test_the_rest_of_the_delivery_and_other_symbols_are_untouched(tmp_path: Path) -> None:
    space, good = Workspace(tmp_path), walk(["A", "B", "C"])
    version = store_version(space)
    assert version is None
    report = take(space, odd(good, {300: 100.0}))
    assert [row.new for row in report.symbols] == [234, 233, 234]
    assert report.exit_code == 0


def test_the_same_file_once_more_does_not_confirm_its_own_last_bar(tmp_path: Path) -> None:
    # old bars months before, then one right bar and one in doubt: seen again, the right one is no company to it
    space, whole = Workspace(tmp_path), walk(["A"], start="2026-01-05", days=120)
    take(space, whole.head(2))
    late = odd(whole.tail(2), {1: 0.001})
    first = take(space, late)
    assert [bad.reason.partition(":")[2] for bad in first.symbols[0].quarantined] == [" an unconfirmed price"]
    again = take(space, late)
    assert (again.version, again.symbols[0].new, again.symbols[0].unchanged) == (first.version, 0, 1)


def test_a_stamp_counts_once_as_received_then_as_stored_then_as_set_aside() -> None:
    """Twelve bars of a calm hour; bar 5 was stored, and bar 8 set aside, at 100 times the price."""
    calm = walk(["A"]).head(12)
    wrong = odd(calm, {5: 100.0, 8: 100.0})
    at = pl.int_range(pl.len())
    none = calm.clear()
    known, waiting = wrong.filter(~at.is_in([8])), wrong.filter(at == 8)
    right = sift(calm.filter(at.is_in([5, 8])), stored=known, waiting=waiting)
    assert right.bars.equals(calm.filter(at.is_in([5, 8])))
    assert [part.height for part in (right.rejects, right.confirmed, right.withdrawn)] == [0, 0, 0]
    # the wrong one is received once more: the stored right one is not pushed out, what waits is not confirmed
    again = sift(wrong.filter(at == 5), stored=calm.filter(~at.is_in([8])), waiting=waiting)
    assert again.bars.height == again.confirmed.height == again.withdrawn.height == 0
    assert again.rejects["ts"].to_list() == [calm["ts"][5]]
    # a level that was set aside and now stays: what waits comes back, what is stored and calm is left alone
    risen = odd(calm, dict.fromkeys(range(8, 12), 100.0))
    back = sift(risen.tail(3), stored=calm.head(8), waiting=risen.filter(at == 8))
    assert back.confirmed["ts"].to_list() == [calm["ts"][8]]
    assert (back.bars.height, back.rejects.height, back.withdrawn.height) == (3, 0, 0)
    assert sift(calm, stored=none, waiting=none).bars.equals(calm)
