"""In: command lines as typed. Out: tables, JSON, exit codes and one message on stderr; never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from klinepred.cli import main
from tests.bars.made import flat, rows, walk

NOW = ("--now", "2026-11-30")


@pytest.fixture
def space(tmp_path: Path) -> Path:
    bad = rows(flat("AAPL", "2026-06-01T20:00:00"))
    pl.concat([walk(["AAPL", "MSFT"]), bad]).write_parquet(tmp_path / "bars.parquet")
    return tmp_path


def test_ingest_shows_a_row_per_symbol_and_a_summary(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", str(space / "bars.parquet"), "-w", str(space), *NOW]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].split()[:3] == ["AAPL", "ok", "234"]
    assert out[3] == "2 symbols: 468 new, 1 quarantined; store version 0"
    assert out[4] == "quarantined 1: outside the trading sessions"


def test_ingest_as_json_has_the_agreed_keys(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", str(space / "bars.parquet"), "-w", str(space), "--format", "json", "-q", *NOW]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert captured.err == ""
    assert report["version"] == 0
    first = report["symbols"][0]
    assert set(first) >= {
        "symbol", "status", "received", "new", "revised", "duplicates", "quarantined", "expected", "missing",
        "zero_volume", "first_ts", "last_ts", "message",
    }  # fmt: skip
    assert first["quarantined"] == [{"ts": "2026-06-01T20:00:00Z", "reason": "outside the trading sessions"}]
    assert (first["first_ts"], first["expected"], first["missing"]) == ("2026-06-01T13:30:00Z", 234, 0)


def test_bars_list_show_and_check_agree_with_what_went_in(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", str(space / "bars.parquet"), "-w", str(space), "-q", *NOW]) == 0
    capsys.readouterr()
    assert main(["bars", "list", "-w", str(space), "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(row["symbol"], row["calendar"], row["zone"], row["bars"]) for row in listed] == [
        ("AAPL", "XNYS", "America/New_York", 234),
        ("MSFT", "XNYS", "America/New_York", 234),
    ]
    command = ["bars", "show", "-w", str(space), "--symbols", "MSFT", "--start", "2026-06-03", "--format", "csv"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "symbol,ts,open,high,low,close,volume"
    assert lines[1].startswith("MSFT,2026-06-03T13:30:00Z,")
    assert len(lines) == 79
    assert main(["bars", "check", "-w", str(space), "--format", "json", "--now", "2026-06-04T14:00:00Z"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert [(row["sessions"], row["expected"], row["missing"], row["late"]) for row in checked] == [(3, 234, 0, 6)] * 2


def test_check_finds_missing_bars_per_session_half_days_included(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = walk(["A"], start="2026-11-23", days=5)  # Thanksgiving on the 26th, half day on the 27th
    frame.filter(pl.int_range(pl.len()) != 100).write_parquet(tmp_path / "a.parquet")
    assert main(["ingest", str(tmp_path / "a.parquet"), "-w", str(tmp_path), "-q", *NOW]) == 0
    capsys.readouterr()
    assert main(["bars", "check", "--sessions", "-w", str(tmp_path), "--format", "json", *NOW]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["session"], row["expected"], row["missing"]) for row in rows] == [
        ("2026-11-23", 78, 0),
        ("2026-11-24", 78, 1),
        ("2026-11-25", 78, 0),
        ("2026-11-27", 42, 0),
    ]


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (["ingest", "nope.csv"], 2, "no such file"),
        (["ingest", "bars.parquet", "--calendar", "XNYX"], 2, "XNYS"),
        (["ingest", "bars.parquet", "--source", "yahoo"], 2, "--source yahoo"),
        (["ingest", "bars.parquet", "--start", "tomorrow"], 2, "--start tomorrow"),
        (["ingest", "bars.parquet", "--start", "2026-06-03", "--end", "2026-06-01"], 2, "before the end"),
        (["ingest", "bars.parquet", "--vendor", "acme"], 2, "--vendor acme"),
        (["ingest", "bars.parquet", "--tz", "Mars/Base"], 2, "Mars/Base"),
        (["ingest", "cut.parquet"], 1, "whole Parquet file"),
        (["bars", "show"], 1, "klinepred ingest"),
        (["bars", "check"], 1, "klinepred ingest"),
        (["bars", "list"], 0, "nothing stored yet"),
    ],
)
def test_bad_input_is_one_message_and_the_right_exit_code(
    space: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    line: list[str],
    code: int,
    words: str,
) -> None:
    monkeypatch.chdir(space)
    (space / "cut.parquet").write_bytes((space / "bars.parquet").read_bytes()[:500])
    assert main(line) == code
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("error:") == (code != 0)
    assert "Traceback" not in captured.err


def test_a_refused_symbol_is_named_and_gives_exit_code_3(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["ingest", str(space / "bars.parquet"), "-w", str(space), "-q", *NOW])
    split = walk(["AAPL", "MSFT"]).with_columns(
        pl.when(pl.col("symbol") == "AAPL").then(pl.col(name) / 4.0).otherwise(name).alias(name)
        for name in ("open", "high", "low", "close")
    )
    split.write_parquet(space / "split.parquet")
    capsys.readouterr()
    assert main(["ingest", str(space / "split.parquet"), "-w", str(space), *NOW]) == 3
    captured = capsys.readouterr()
    assert "AAPL: received closes are 1/4 of the stored ones" in captured.err
    assert "1 of 2 symbols failed" in captured.out


def test_the_simulated_market_comes_in_by_its_days_and_unused_options_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["ingest", "--source", "simulate", "--start", "2026-05-28", "--end", "2026-06-02", "--tz", "UTC", *NOW]
    assert main([*line, "-w", str(tmp_path), "--set", "data.simulate.symbols=2", "--format", "json"]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert [(row["symbol"], row["new"], row["first_ts"]) for row in report["symbols"]] == [
        ("SIM001", 312, "2026-05-28T13:30:00Z"),
        ("SIM002", 312, "2026-05-28T13:30:00Z"),
    ]
    assert "warning: --tz is not used" in captured.err
