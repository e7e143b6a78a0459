"""In: names of symbols and files that nobody could type back. Out: set aside or refused, each said."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path
from random import Random

import polars as pl
import pytest

from klinepred.bars.ingest import ingest
from klinepred.bars.sources.panics import unsaid
from klinepred.errors import SourceError
from klinepred.paths import Workspace
from tests.bars.fuzz.packed import scratch
from tests.bars.made import NOW, flat, from_files, rows, walk
from tests.conftest import Typed


@pytest.mark.parametrize(
    "symbol",
    ["A\x85B", "A\u200fB", "\u202eAB", "A\u00adB", "\ufeffA", "A\u2028B", "A\ue000B", "A\u00a0B", "A\tB", "A\x7f"],
)
def test_symbols_with_signs_nobody_sees_are_set_aside(tmp_path: Path, symbol: str) -> None:
    pl.concat([rows(flat(name, "2026-06-01T14:00:00")) for name in (symbol, "A B")]).write_parquet(
        tmp_path / "x.parquet"
    )
    report = ingest(from_files(tmp_path / "x.parquet"), Workspace(tmp_path), now=NOW)
    good, bad = sorted(report.symbols, key=lambda row: row.symbol != "A B")
    assert (good.symbol, good.new) == ("A B", 1)
    assert bad.reasons() == {"no possible name of a symbol": 1}


@pytest.mark.parametrize(
    "symbol", ["平安银行", "É", "ＡＡＰＬ", "M&M.NS", "ES 03-26", "BTC/USDT", "^GSPC", "EURUSD=X", "CON"]
)
def test_symbols_of_all_scripts_are_taken_letter_for_letter(tmp_path: Path, symbol: str) -> None:
    rows(flat(symbol, "2026-06-01T14:00:00")).write_parquet(tmp_path / "x.parquet")
    report = ingest(from_files(tmp_path / "x.parquet"), Workspace(tmp_path), now=NOW)
    assert [(row.symbol, row.new) for row in report.symbols] == [(symbol, 1)]


def test_a_file_whose_name_is_no_text_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.csv")
    try:
        path.write_text("ts,open,high,low,close,volume\n2026-06-01T14:00:00Z,1,1,1,1,1\n")
    except OSError:
        pytest.skip("this disk takes names in UTF-8 only")
    with pytest.raises(SourceError, match=r"caf\\udce9") as caught:
        ingest(from_files(path), Workspace(tmp_path), now=NOW)
    assert "rename" in caught.value.do
    assert str(caught.value).encode()


def test_a_symbol_that_is_no_text_is_refused_on_the_command_line(tmp_path: Path, typed: Typed) -> None:
    (tmp_path / "x.csv").write_text("ts,open,high,low,close,volume\n2026-06-01T14:00:00Z,1,1,1,1,1\n")
    code, _, err = typed("ingest", str(tmp_path / "x.csv"), "-w", str(tmp_path), "--symbols", os.fsdecode(b"caf\xe9"))
    assert code == 2
    assert "UTF-8" in err


@pytest.mark.parametrize("symbol", [r"A\ud800", r"\udcffA", r"\udc00\ud800"])
def test_half_a_sign_in_json_is_damage_and_a_whole_one_is_not(tmp_path: Path, symbol: str) -> None:
    row = '{"symbol": "%s", "ts": "2026-06-01T14:00:00Z", "open": 1, "high": 1, "low": 1, "close": 1, "volume": 1}'
    (tmp_path / "x.json").write_text(f"[{row % symbol}, {row % r'ud83d'}]".replace("ud83d", r"\ud83d\ude00"))
    report = ingest(from_files(tmp_path / "x.json"), Workspace(tmp_path), now=NOW)
    good, bad = sorted(report.symbols, key=lambda one: "\ufffd" in one.symbol)
    assert (good.symbol, good.new) == ("\U0001f600", 1)
    assert bad.reasons() == {"no possible name of a symbol": 1}


def test_digits_of_other_scripts_are_no_dates(tmp_path: Path) -> None:
    line = "２/１３/2026 09:30,1,1,1,1,1\n"
    (tmp_path / "x.csv").write_text("ts,open,high,low,close,volume\n" + line * 2)
    with pytest.raises(SourceError):
        ingest(from_files(tmp_path / "x.csv", symbols=("A",)), Workspace(tmp_path), now=NOW)


@pytest.mark.parametrize("kind", ["parquet", "ipc"])
def test_damaged_binary_files_print_nothing_of_their_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    out = io.BytesIO()
    getattr(walk(["A"], days=2), f"write_{kind}")(out, compression="uncompressed")
    chance = Random(4)  # noqa: S311
    for _ in range(40):
        (tmp_path / f"x.{kind}").write_bytes(scratch(out.getvalue(), chance))
        with suppress(SourceError):
            ingest(from_files(tmp_path / f"x.{kind}"), Workspace(tmp_path / "space"), now=NOW)
    assert "panicked" not in capfd.readouterr().err


def test_what_others_print_meanwhile_is_printed_afterwards(capfd: pytest.CaptureFixture[str]) -> None:
    with unsaid():
        os.write(2, b"a word\n")
        assert capfd.readouterr().err == ""
    with unsaid():
        os.write(2, b"thread 'x' panicked at y\n")
    assert capfd.readouterr().err == "a word\n"


@pytest.mark.parametrize("form", ["json", "table"])
def test_of_several_files_one_whose_name_is_no_text_is_named(tmp_path: Path, typed: Typed, form: str) -> None:
    text = "ts,open,high,low,close,volume\n2026-06-01T14:00:00Z,1,1,1,1,1\n"
    folder = tmp_path / "in"
    folder.mkdir()
    try:
        for name in (b"caf\xe9.csv", b"A\x1b[31m.csv", b"AAPL.csv"):
            (folder / os.fsdecode(name)).write_text(text)
    except OSError:
        pytest.skip("this disk takes names in UTF-8 only")
    code, out, err = typed("ingest", str(folder), "-w", str(tmp_path), "--format", form, "--now", "2026-11-30")
    assert code == 3
    assert "caf\ufffd.csv" in out
    assert "\x1b" not in out + err
