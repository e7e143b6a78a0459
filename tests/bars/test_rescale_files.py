"""In: several files on another basis than the store, in any order. Out: the store ends on theirs, all of it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from klinepred.paths import Workspace
from tests.bars.made import walk
from tests.bars.test_rescale import scaled, stored, take


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (3, 0, 2, 1), (2, 3, 1, 0)])
def test_months_in_several_files_and_any_order_end_in_the_same_store(tmp_path: Path, order: tuple[int, ...]) -> None:
    whole = walk(["A"], days=12)  # ten sessions: 780 bars
    space = Workspace(tmp_path)
    take(space, whole.head(546))
    adjusted = scaled(whole, 0.25, 4.0)
    parts = [adjusted.slice(78, 78), adjusted.slice(156, 200), adjusted.slice(400, 100), adjusted.slice(546)]
    report = take(space, *(parts[n] for n in order), rescale="always")
    (row,) = report.symbols
    assert (row.status, row.new, row.revised, report.exit_code) == ("ok", 234, 378, 0)
    assert row.rescaled is not None
    assert row.rescaled.bars == 546 - 78 - 200 - 100
    assert stored(space).equals(adjusted)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_split_between_two_files_rescales_what_neither_brings(tmp_path: Path, order: tuple[int, ...]) -> None:
    smooth = walk(["A"], days=12)
    raw = pl.concat([scaled(smooth.head(390), 4.0, 0.25), smooth.slice(390)])
    space = Workspace(tmp_path)
    take(space, raw)
    parts = [smooth.slice(100, 290), smooth.slice(390, 156)]
    report = take(space, *(parts[n] for n in order), rescale="always")
    assert report.symbols[0].rescaled is not None
    assert report.symbols[0].rescaled.bars == 100
    assert stored(space)["close"].to_numpy() == pytest.approx(smooth["close"].to_numpy(), rel=1e-12)


def test_new_months_stored_before_the_doubt_are_not_rescaled_again(tmp_path: Path) -> None:
    """The first two files overlap nothing, and hold more bars than the last, which shows the ratio."""
    whole = walk(["A"], days=12)
    space = Workspace(tmp_path)
    take(space, whole.slice(156, 312))
    adjusted = scaled(whole, 0.1, 10.0)
    report = take(space, adjusted.head(156), adjusted.slice(468), adjusted.slice(200, 30), rescale="always")
    assert report.symbols[0].rescaled is not None
    assert report.symbols[0].rescaled.bars == 312 - 30
    assert stored(space).equals(adjusted)
    assert not [line for line in report.remarks if "is about" in line]


def test_an_ingest_stopped_before_its_last_file_is_completed_by_a_second_run(tmp_path: Path) -> None:
    """What the first run left is a store on two bases; the second finds the jump between them."""
    whole = walk(["A"], days=12)
    space = Workspace(tmp_path)
    take(space, whole.head(546))
    adjusted = scaled(whole, 0.25, 4.0)
    report = take(space, adjusted.slice(546))
    assert any("about 1/4 of the close before it" in line for line in report.remarks)
    take(space, adjusted.slice(546), adjusted.slice(400, 146), rescale="always")
    assert stored(space).equals(adjusted)
