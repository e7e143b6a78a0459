"""In: files of one symbol before and after a split, in any order. Out: one store, on the basis of the newest bars."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from klinepred.cli import main
from klinepred.paths import Workspace
from tests.bars.made import walk
from tests.bars.test_rescale import scaled, stored, take

DAY = 78
WHOLE = walk(["A"], days=12)
"""Ten sessions, on the basis before the split."""
SPLIT, UNIT = (0.5, 2.0), (0.01, 1.0)


def days(first: int, last: int, basis: tuple[float, float] = (1.0, 1.0)) -> pl.DataFrame:
    """Sessions `first` to `last`, counted from 1."""
    return scaled(WHOLE.slice((first - 1) * DAY, (last - first + 1) * DAY), *basis)


def same(got: pl.DataFrame, want: pl.DataFrame) -> None:
    assert got["ts"].equals(want["ts"])
    for name in ("open", "high", "low", "close", "volume"):
        assert got[name].to_numpy() == pytest.approx(want[name].to_numpy(), rel=1e-12)


@pytest.mark.parametrize("basis", [SPLIT, UNIT])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_older_file_follows_the_newer_in_a_fresh_workspace(
    tmp_path: Path, basis: tuple[float, float], order: tuple[int, int]
) -> None:
    space = Workspace(tmp_path)
    files = [days(1, 6), days(5, 10, basis)]
    report = take(space, *(files[n] for n in order), rescale="always")
    (row,) = report.symbols
    assert (row.status, row.new, report.exit_code) == ("ok", 10 * DAY, 0)
    assert row.received == 12 * DAY == row.new + row.revised + row.unchanged + row.duplicates
    same(stored(space), days(1, 10, basis))
    assert row.rescaled is not None
    assert (float(row.rescaled.price), float(row.rescaled.volume)) == basis
    want = files[0]["ts"]
    assert (row.rescaled.bars, row.rescaled.first_ts, row.rescaled.last_ts) == (4 * DAY, want[0], want[4 * DAY - 1])
    assert (row.rescaled.same, row.rescaled.common) == (2 * DAY, 2 * DAY)
    assert (
        "312 bars on another basis than the newest are rescaled, 2026-06-01 13:30Z to 2026-06-04 19:55Z" in row.message
    )
    again = take(space, *(files[n] for n in order), rescale="always")
    assert (again.symbols[0].status, again.version) == ("unchanged", report.version)


@pytest.mark.parametrize("basis", [SPLIT, UNIT])
@pytest.mark.parametrize("order", [*permutations(range(4))])
def test_four_files_two_of_each_basis_end_the_same_in_any_order(
    tmp_path: Path, basis: tuple[float, float], order: tuple[int, ...]
) -> None:
    space = Workspace(tmp_path)
    files = [days(1, 3), days(3, 6), days(5, 8, basis), days(8, 10, basis)]
    report = take(space, *(files[n] for n in order), rescale="always")
    assert report.symbols[0].status == "ok"
    same(stored(space), days(1, 10, basis))
    assert report.symbols[0].rescaled is not None
    assert report.symbols[0].rescaled.bars == 4 * DAY
    assert not [line for line in report.remarks if "looks like a split" in line]


@pytest.mark.parametrize("old", [[(1, 6)], [(1, 2), (3, 6)], [(1, 3), (3, 6)]])
@pytest.mark.parametrize("newest_first", [False, True])
def test_old_files_that_come_again_beside_the_new_one_follow_it(
    tmp_path: Path, old: list[tuple[int, int]], newest_first: bool
) -> None:
    space = Workspace(tmp_path)
    take(space, days(*old[0]))
    files = [*(days(*span) for span in old), days(5, 10, SPLIT)]
    report = take(space, *(files[::-1] if newest_first else files), rescale="always")
    assert report.symbols[0].status == "ok"
    same(stored(space), days(1, 10, SPLIT))
    entry = json.loads(DeltaTable(space.data / "bars").history(1)[0]["klinepred.rescaled"])
    assert (len(entry), entry[0]["bars"], entry[0]["factor"]) == (1, 4 * DAY, "1/2")
    assert "klinepred.new" in DeltaTable(space.data / "bars").history(1)[0]


@pytest.mark.parametrize("order", [*permutations(range(2))])
def test_later_files_of_both_bases_bring_the_first_one_stored_before_along(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    space = Workspace(tmp_path)
    take(space, days(1, 3))
    files = [days(3, 6), days(5, 10, SPLIT)]
    report = take(space, *(files[n] for n in order), rescale="always")
    assert report.symbols[0].status == "ok"
    same(stored(space), days(1, 10, SPLIT))


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_a_file_without_common_bars_is_told_by_the_prices_around_it(tmp_path: Path, order: tuple[int, ...]) -> None:
    space = Workspace(tmp_path)
    files = [days(1, 2), days(3, 6), days(5, 10, SPLIT)]
    assert take(space, *(files[n] for n in order), rescale="always").symbols[0].status == "ok"
    same(stored(space), days(1, 10, SPLIT))


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_two_splits_after_each_other_multiply(tmp_path: Path, order: tuple[int, ...]) -> None:
    space = Workspace(tmp_path)
    files = [days(1, 4), days(3, 7, (0.5, 2.0)), days(6, 10, (1 / 6, 6.0))]
    report = take(space, *(files[n] for n in order), rescale="always")
    assert report.symbols[0].status == "ok"
    same(stored(space), days(1, 10, (1 / 6, 6.0)))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_raw_file_with_the_jump_follows_the_adjusted_one(tmp_path: Path, order: tuple[int, int]) -> None:
    """The adjusted file begins after the raw one: what it lacks is adjusted all the same."""
    space = Workspace(tmp_path)
    files = [pl.concat([days(1, 4), days(5, 10, SPLIT)]), days(3, 8, SPLIT)]
    report = take(space, *(files[n] for n in order), rescale="always")
    assert report.symbols[0].status == "ok"
    same(stored(space), days(1, 10, SPLIT))
    assert report.symbols[0].rescaled is not None
    assert report.symbols[0].rescaled.bars == 2 * DAY


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_bases_that_end_together_are_refused(tmp_path: Path, order: tuple[int, int]) -> None:
    space = Workspace(tmp_path)
    files = [days(1, 6), days(3, 6, SPLIT)]
    (row,) = take(space, *(files[n] for n in order), rescale="always").symbols
    assert row.status == "rejected"
    assert "both end with 2026-06-08 19:55Z, so that nothing says which is the newer" in row.message
    assert "that came before in this ingest are stored" in row.message
    same(stored(space), files[order[0]])


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_a_file_of_which_nothing_tells_the_basis_is_refused_and_leaves_no_half(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    space = Workspace(tmp_path)
    far = walk(["A"], start="2026-03-02", days=2).with_columns(pl.col("open", "high", "low", "close") * 0.7)
    files = [days(1, 6), days(5, 10, SPLIT), far]
    (row,) = take(space, *(files[n] for n in order), rescale="always").symbols
    assert row.status == "rejected"
    assert "those from 2026-03-02 14:30Z to 2026-03-03 20:55Z are" in row.message


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_without_the_option_the_factor_and_what_was_stored_are_named(tmp_path: Path, order: tuple[int, int]) -> None:
    space = Workspace(tmp_path)
    files = [days(1, 6), days(5, 10, SPLIT)]
    (row,) = take(space, *(files[n] for n in order)).symbols
    assert row.status == "rejected"
    assert ("1/2 of" if order == (0, 1) else "2 times") in row.message
    assert "468 bars of it that came before in this ingest are stored" in row.message
    same(stored(space), files[order[0]])


@pytest.mark.parametrize("names", [("old", "new"), ("new", "old"), (".",)])
def test_the_command_takes_both_files_or_their_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, ...]
) -> None:
    folder, space = tmp_path / "files", Workspace(tmp_path / "space")
    folder.mkdir()
    days(1, 6).write_csv(folder / "old.csv")
    days(5, 10, SPLIT).write_csv(folder / "new.csv")
    take(space, days(1, 6))
    paths = [str(folder / (name if name == "." else f"{name}.csv")) for name in names]
    assert main(["ingest", *paths, "--rescale", "-w", str(space.root), "--now", "2026-11-30"]) == 0
    assert "warning: A: 312 bars on another basis than the newest are rescaled" in capsys.readouterr().err
    same(stored(space), days(1, 10, SPLIT))
    assert main(["bars", "check", "--jumps", "-w", str(space.root), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_step_without_common_bars_says_that_the_option_had_no_effect(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    take(space, days(1, 4))
    (line,) = take(space, days(5, 6, SPLIT), rescale="always").remarks[-1:]
    assert "is about 1/2 of the close before it" in line
    assert "; --rescale had no effect on it, since no common bars show the ratio; look at" in line
    take(space, days(1, 4), rescale="never")
    plain = take(Workspace(tmp_path / "b"), days(1, 4), days(5, 6, SPLIT)).remarks[-1]
    assert "--rescale" not in plain


def test_the_history_shows_a_rescaling_in_a_few_words_and_keeps_the_record_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = Workspace(tmp_path)
    take(space, days(1, 6), days(5, 10, SPLIT), rescale="always")
    words = ["bars", "history", "-w", str(tmp_path)]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "A x 1/2, 312" in " ".join(out.split())
    assert "{" not in out
    assert main([*words, "--format", "json"]) == 0
    assert json.loads(json.loads(capsys.readouterr().out)[-1]["rescaled"])[0]["bars"] == 312
