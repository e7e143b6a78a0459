"""In: tables, terminals of 40 to 200 columns. Out: every number, stamp and word is there, whole, in lines that fit."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime

import polars as pl
import pytest

from klinepred.cli.output import table

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
STAMP = datetime(2026, 6, 10, 19, 55, tzinfo=UTC)
PREDICTED = pl.DataFrame(
    {
        "symbol": ["AAPL", "BRK.B", "美团"],
        "bar_ts": [STAMP, STAMP, STAMP],
        "target_ts": [STAMP.replace(day=11), STAMP.replace(day=11), STAMP.replace(day=12)],
        "expected bps": [0.12, -11.53, 123456.7],
        "target": ["relative", "relative", "relative"],
        "P(up)": [0.512, 0.481, None],
        "lo80 bps": [-12.1, -33.9, -1.5],
        "stale": [False, True, False],
        "note": [None, "stale: closed 3 days ago; not in training", None],
    }
)


def on_terminal(frame: pl.DataFrame, width: int, monkeypatch: pytest.MonkeyPatch, *, title: str = "") -> list[str]:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    return COLOURS.sub("", table(frame, title=title)).splitlines()


@pytest.mark.parametrize("width", [28, 40, 50, 60, 80, 100, 200])
def test_nothing_is_cut_and_no_line_is_longer_than_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.cells import cell_len

    title = "model demo-20261130T101500Z-1f2e3d4c, and a word more"
    lines = on_terminal(PREDICTED, width, monkeypatch, title=title)
    assert max(map(cell_len, lines)) <= width
    words = set(" ".join(lines).split())
    assert {"AAPL", "BRK.B", "0.12", "-11.53", "123,457", "0.512", "0.481", "-12.1", "-33.9", "-1.5"} <= words
    assert {"2026-06-10", "2026-06-11", "2026-06-12", "19:55Z", "relative", "yes", "no", "training", "word"} <= words


def test_what_is_the_same_in_all_rows_is_said_once_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    same = PREDICTED.head(2)
    lines = on_terminal(same, 60, monkeypatch)
    assert "in all rows:  bar_ts 2026-06-10 19:55Z" in lines
    assert lines[0].split() == ["symbol", "expected", "bps", "P(up)", "lo80", "bps", "stale", "note"]
    assert lines[1].split() == ["AAPL", "0.12", "0.512", "-12.1", "no", "-"]
    wide = on_terminal(same, 200, monkeypatch)
    assert len(wide) == 3
    assert "in all rows" not in " ".join(wide)


def test_where_no_column_fits_beside_another_a_row_is_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_terminal(PREDICTED.head(1), 28, monkeypatch) == [
        "AAPL",
        "  bar_ts 2026-06-10 19:55Z",
        "  target_ts 2026-06-11",
        "    19:55Z",
        "  expected bps 0.12",
        "  target relative",
        "  P(up) 0.512",
        "  lo80 bps -12.1  stale no",
        "  note -",
    ]


def test_a_pipe_gets_a_row_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert len(table(PREDICTED, title="t").splitlines()) == 2 + PREDICTED.height
