"""In: command lines of `klinepred dataset`. Out: what each part holds, what is left out, the memory; or one message."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.bars.made import walk
from tests.conftest import Typed

PIPELINE = """
name = "six"
[data]
source = "files"
symbols = ["AAA", "BBB", "CCC", "DDD", "EEE"]
calendar = "XNYS"
"""
DAYS = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workspace")
    walk(["AAA", "BBB", "CCC", "DDD", "EEE"], start="2026-02-23", days=DAYS).write_parquet(folder / "bars.parquet")
    (folder / "six.toml").write_text(PIPELINE)
    return folder


@pytest.fixture
def space(folder: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    if not (folder / "data").exists():
        assert typed("ingest", "bars.parquet", "-p", "six.toml", "--calendar", "XNYS", "-q")[0] == 0
    return folder


def test_every_stored_bar_is_counted_once_with_its_part_or_its_reason(space: Path, typed: Typed) -> None:
    code, out, err = typed("dataset", "describe", "-p", "six.toml", "--format", "json")
    assert code == 0
    table = json.loads(out)
    parts = {row["part"]: row for row in table["parts"]}
    assert list(parts) == ["train", "validation", "calibration", "test"]
    usable = sum(row["rows"] for row in parts.values())
    warm = sum(row["warm_up"] for row in parts.values())
    stored = json.loads(typed("bars", "list", "--format", "json")[1])
    assert usable + warm == sum(row["bars"] for row in stored)
    reasons = ("purged", "embargoed", "no_next_bar", "no_unit", "not_trained", "few_symbols", "short_run")
    for row in parts.values():
        assert row["rows"] == row["labelled"] + sum(row[reason] for reason in reasons)
        assert row["labelled"] == row["within"] + row["break"]
        # one step into each session, a symbol; that into the very first usable one begins before it
        assert row["break"] == 5 * (row["sessions"] - (row["part"] == "train"))
        assert row["sequences"] >= 5 * row["sessions"]
    assert parts["test"]["no_next_bar"] == 5  # the newest bar of each symbol
    assert table["memory_bytes"]["matrix"] == 4 * 50 * usable
    assert "labels removed: none" in err


def test_folds_purge_and_embargo_are_shown_part_by_part(space: Path, typed: Typed) -> None:
    words = ("--set", "dataset.split.folds=2", "--set", "dataset.split.embargo=1", "--set", "dataset.horizon=3")
    code, out, err = typed("dataset", "describe", "-p", "six.toml", "--format", "csv", *words)
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["fold"], row["part"]) for row in rows[:5]] == [
        *[("1", part) for part in ("train", "validation", "calibration", "test")],
        ("1", "outside"),
    ]
    for row in rows:
        if row["part"] in ("validation", "test"):
            assert int(row["purged"]) == 5 * 2  # labels of 3 bars: two that end in the part begin before it
            assert int(row["embargoed"]) == 5 * 78  # the other 76 that end in it, and two that begin in it
        if row["part"] == "calibration":
            assert (row["purged"], row["embargoed"]) == ("10", "0")
    assert "fold 2 of 2" in err
    assert "at the head of test 10 purged and 390 embargoed" in err
    code, out, _ = typed("dataset", "describe", "-p", "six.toml", *words)
    assert code == 0
    assert "expected memory" in out
    assert "purged: labels that reach over the border" in out


def test_steps_left_out_are_said_to_be(space: Path, typed: Typed) -> None:
    words = ("--set", "dataset.steps=within-session", "--format", "json")
    parts = json.loads(typed("dataset", "describe", "-p", "six.toml", *words)[1])["parts"]
    assert all(row["break"] == 0 for row in parts)
    assert [row["not_trained"] for row in parts[1:]] == [5 * row["sessions"] for row in parts[1:]]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("dataset.split.folds=99", "expected: at least one test session a fold"),
        ("dataset.split.embargo=30", "expected: fewer sessions than the shortest part"),
        ("dataset.split.train=0.9", "train + validation must leave room for a test part"),
    ],
)
def test_a_split_that_cannot_be_ends_in_one_message(space: Path, typed: Typed, word: str, expected: str) -> None:
    code, out, err = typed("dataset", "describe", "-p", "six.toml", "--set", word)
    assert code in (1, 2)
    assert out == ""
    assert expected in err
