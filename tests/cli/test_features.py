"""In: command lines of `klinepred features`. Out: the catalogue, the values, one message for what cannot be."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars.store import scan_bars
from klinepred.features.build import F50, build_features
from klinepred.paths import Workspace
from tests.bars.made import ROUND, walk
from tests.conftest import Typed

PIPELINE = """
name = "six"
[data]
source = "files"
symbols = ["AAA", "BBB", "CCC", "DDD", "EEE", "NOT"]
calendar = "XNYS"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workspace")
    walk(["AAA", "BBB", "CCC", "DDD", "EEE", "OUT"], days=3).write_parquet(folder / "bars.parquet")
    walk(["COIN"], days=1, clock=ROUND).write_parquet(folder / "coin.parquet")
    (folder / "six.toml").write_text(PIPELINE)
    return folder


@pytest.fixture
def space(folder: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    if not (folder / "data").exists():
        assert typed("ingest", "bars.parquet", "-p", "six.toml", "--calendar", "XNYS", "-q")[0] == 0
        assert typed("ingest", "coin.parquet", "--calendar", "24/7", "-q")[0] == 0
    return folder


def test_list_prints_the_catalogue(typed: Typed) -> None:
    code, out, err = typed("features", "list")
    assert code == 0
    assert all(name in out for name in F50.names)
    assert "50 features" in err
    assert F50.fingerprint in err


def test_list_as_json_has_the_lookback_of_each(typed: Typed) -> None:
    code, out, _ = typed("features", "list", "--format", "json")
    rows = json.loads(out)
    assert code == 0
    assert [row["name"] for row in rows] == list(F50.names)
    assert rows[0]["family"] == "price"
    assert rows[0]["lookback_bars"] == F50.features[0].lookback_bars


def test_show_puts_out_the_values_of_build_features(space: Path, typed: Typed, tmp_path: Path) -> None:
    file = tmp_path / "aaa.parquet"
    code, _, err = typed(
        "features", "show", "-p", "six.toml", "--symbols", "AAA", "--format", "parquet", "-o", str(file)
    )
    assert code == 0
    assert "NOT" in err
    members = ["AAA", "BBB", "CCC", "DDD", "EEE"]
    table = build_features(scan_bars(Workspace(space), symbols=members), universe=members).frame
    shown = pl.read_parquet(file)
    assert shown.columns == ["symbol", "ts", "close", *F50.names]
    assert shown.equals(table.filter(pl.col("symbol") == "AAA"), null_equal=True)
    assert shown["cross__market_1"].abs().sum() > 0.0


def test_the_cross_section_is_the_pipelines_whatever_symbols_are_asked_for(space: Path, typed: Typed) -> None:
    rows = _csv(typed("features", "show", "-p", "six.toml", "--symbols", "AAA,OUT", "--format", "csv")[1])
    whole = _csv(typed("features", "show", "-p", "six.toml", "--format", "csv")[1])
    assert {row["symbol"] for row in rows} == {"AAA", "OUT"}
    assert {row["symbol"] for row in whole} == {"AAA", "BBB", "CCC", "DDD", "EEE"}
    assert [row for row in rows if row["symbol"] == "AAA"] == [row for row in whole if row["symbol"] == "AAA"]


def test_a_span_shows_fewer_rows_of_the_same_numbers(space: Path, typed: Typed) -> None:
    words = ("features", "show", "-p", "six.toml", "--symbols", "BBB", "--format", "json")
    whole = json.loads(typed(*words)[1])
    code, out, _ = typed(*words, "--start", "2026-06-02T15:00:00Z", "--end", "2026-06-03")
    rows = json.loads(out)
    assert code == 0
    assert rows[0]["ts"] == "2026-06-02T15:00:00Z"
    assert rows == [row for row in whole if "2026-06-02T15:00:00Z" <= row["ts"] < "2026-06-03"]
    assert rows[0]["trend__rsi_14"] is not None


def test_as_of_shows_the_store_as_it_was(space: Path, typed: Typed) -> None:
    words = ("features", "show", "-p", "six.toml", "--format", "csv")
    code, out, _ = typed(*words, "--as-of", "1")
    assert code == 0
    assert out == typed(*words)[1]
    code, out, err = typed(*words, "--as-of", "99")
    assert (code, out) == (1, "")
    assert "99" in err


def test_a_table_shows_the_last_bars_side_by_side(space: Path, typed: Typed) -> None:
    code, out, _ = typed("features", "show", "-p", "six.toml", "--symbols", "AAA", "--last", "3")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith("last 3 of 234 rows")
    assert "AAA 2026-06-03 19:55Z" in lines[1]
    assert sum(line.split()[0] in F50.names for line in lines) == 50


def test_symbols_that_no_pipeline_lists_are_shown_beside_those_of_their_calendar(
    folder: Path, typed: Typed, tmp_path: Path
) -> None:
    assert typed("ingest", str(folder / "coin.parquet"), "-w", str(tmp_path), "--calendar", "24/7", "-q")[0] == 0
    code, out, err = typed("features", "show", "-w", str(tmp_path), "--symbols", "COIN", "--format", "csv")
    rows = _csv(out)
    assert code == 0
    assert "no symbol of pipeline us-equities-5m is stored" in err
    assert len(rows) == 288
    assert {row["cross__beta_78"] for row in rows[26:]} == {"1.0"}


def test_an_unknown_symbol_is_one_message(space: Path, typed: Typed) -> None:
    code, out, err = typed("features", "show", "-p", "six.toml", "--symbols", "NOPE", "--format", "csv")
    assert (code, out) == (1, "")
    assert "NOPE" in err
    assert "Traceback" not in err


def test_an_empty_store_is_one_message(typed: Typed, tmp_path: Path) -> None:
    code, out, err = typed("features", "show", "-w", str(tmp_path), "--format", "csv")
    assert (code, out) == (1, "")
    assert "klinepred ingest" in err


def _csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("words", [("features", "show"), ("bars", "show"), ("bars", "export", "-o", "x.csv")])
def test_an_end_before_the_start_is_refused(space: Path, typed: Typed, words: tuple[str, ...]) -> None:
    code, out, err = typed(*words, "--start", "2026-06-03", "--end", "2026-06-03")
    assert (code, out) == (2, "")
    assert "a start before the end" in err


@pytest.mark.parametrize("words", [("features", "show"), ("bars", "show")])
def test_more_last_rows_than_a_machine_counts_are_refused_in_words(
    space: Path, typed: Typed, words: tuple[str, ...]
) -> None:
    code, _, err = typed(*words, "--last", "9" * 30)
    assert code == 2
    assert "not in the range" in err
