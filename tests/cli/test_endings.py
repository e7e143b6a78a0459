"""In: files with many endings after -o. Out: what their ending says, a word where it says nothing known."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from klinepred.cli.endings import form_of
from klinepred.errors import UsageError
from tests.conftest import Typed


def test_a_file_without_a_format_gets_what_its_ending_says(tmp_path: Path, typed: Typed) -> None:
    words = ("features", "list", "-w", str(tmp_path))
    for ending in ("csv", "json", "parquet", "txt", "CSV"):
        code, out, err = typed(*words, "-o", str(tmp_path / "new" / f"rows.{ending}"))
        assert (code, out) == (0, ""), err
    names = pl.read_csv(tmp_path / "new" / "rows.csv")["name"].to_list()
    assert len(names) == 50
    assert [row["name"] for row in json.loads((tmp_path / "new" / "rows.json").read_text())] == names
    assert pl.read_parquet(tmp_path / "new" / "rows.parquet")["name"].to_list() == names
    assert (tmp_path / "new" / "rows.txt").read_text().split()[0] == "name"
    assert pl.read_csv(tmp_path / "new" / "rows.CSV")["name"].to_list() == names


@pytest.mark.parametrize("name", ["rows.xlsx", "rows", "rows.jsonl"])
def test_an_ending_that_is_not_known_is_usage_and_nothing_is_written(tmp_path: Path, typed: Typed, name: str) -> None:
    code, out, err = typed("features", "list", "-w", str(tmp_path), "-o", str(tmp_path / name))
    assert (code, out) == (2, "")
    assert ".csv, .json, .parquet, .pq or .txt" in err
    assert "--format table|csv|json|parquet" in err
    assert not (tmp_path / name).exists()


def test_a_format_that_is_named_wins(tmp_path: Path, typed: Typed) -> None:
    file = tmp_path / "rows.xlsx"
    assert typed("features", "list", "-w", str(tmp_path), "--format", "csv", "-o", str(file))[0] == 0
    assert pl.read_csv(file).height == 50


def test_reports_are_json_beside_what_is_shown_or_refused(tmp_path: Path, typed: Typed) -> None:
    code, out, _ = typed("doctor", "-w", str(tmp_path), "-o", str(tmp_path / "d.json"))
    assert code in (0, 1)
    assert out
    assert "python" in json.loads((tmp_path / "d.json").read_text())
    code, out, err = typed("doctor", "-w", str(tmp_path), "-o", str(tmp_path / "d.csv"))
    assert (code, out) == (2, "")
    assert "a name that ends in .json" in err


def test_lines_of_json_belong_to_follow_alone() -> None:
    assert form_of(Path("x.jsonl"), lines=True) == "json"
    with pytest.raises(UsageError, match=r"x\.jsonl"):
        form_of(Path("x.jsonl"))


def test_commands_with_fewer_forms_know_fewer_endings(tmp_path: Path, typed: Typed) -> None:
    code, _, err = typed("models", "show", "-w", str(tmp_path), "-o", str(tmp_path / "m.csv"))
    assert code == 2
    assert ".json or .txt" in err
