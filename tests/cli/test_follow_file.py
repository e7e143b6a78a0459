"""In: files that are there already. Out: what `predict --follow -o` makes of them: its own go on, others stay."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import klinepred as kp
from klinepred.cli import ledger
from klinepred.cli.follow import follow_to, open_end
from klinepred.errors import UsageError
from klinepred.pipeline import live
from tests.live.market import open_market, simulated

COLUMNS = ["symbol", "bar_ts", "model"]
HEAD = b"symbol,bar_ts,model\n"
ROW = b"AAA,2026-06-01T14:00:00Z,m\n"
LINE = b'{"symbol": "AAA", "bar_ts": "2026-06-01T14:00:00Z", "model": "m"}\n'
SEEN = {"AAA": datetime(2026, 6, 1, 14, tzinfo=UTC)}


@pytest.mark.parametrize(
    ("form", "text", "got"),
    [
        ("csv", b"my notes, all on one line", "another content"),
        ("csv", b"first line\nsecond line", "first line"),
        ("json", b"my notes", "another content"),
        ("json", b"my notes\nmore", "no JSON, one object a line"),
        ("json", HEAD + ROW[:-3], "no JSON, one object a line"),
        ("csv", HEAD + b"AAA,01.06.2026 14:00,m\n", "a bar_ts or a model of another form"),
        ("csv", HEAD + b"AAA,2026-06-01T14:00:00,m\n", "a bar_ts or a model of another form"),
        ("json", b'{"symbol": "AAA", "bar_ts": 1780322400, "model": "m"}\n', "a bar_ts or a model of another form"),
    ],
)
def test_a_file_of_another_content_is_refused_and_stays_as_it_is(
    tmp_path: Path, form: str, text: bytes, got: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=got):
        open_end(path, form=form, columns=COLUMNS, model="m")
    assert path.read_bytes() == text


@pytest.mark.parametrize(
    ("form", "text", "kept", "seen"),
    [
        ("csv", HEAD + ROW + b"BBB,2026-0", HEAD + ROW, SEEN),
        ("csv", HEAD[:9], b"", {}),
        ("csv", HEAD[:-1], b"", {}),
        ("json", LINE + LINE[:30], LINE, SEEN),
        ("json", LINE[:30], b"", {}),
        ("json", LINE[:4], b"", {}),
    ],
)
def test_of_its_own_file_a_line_that_was_cut_off_is_taken_away(
    tmp_path: Path, form: str, text: bytes, kept: bytes, seen: dict[str, datetime]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(text)
    assert open_end(path, form=form, columns=COLUMNS, model="m") == seen
    assert path.read_bytes() == kept


@pytest.mark.parametrize("into_file", [True, False])
def test_what_a_file_holds_is_in_the_ledger_and_a_screen_does_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], into_file: bool
) -> None:
    """Killed between the two, the file lacks the row, and following again makes it; the ledger keeps the first."""
    space, bundle = open_market(
        tmp_path / "work", simulated().filter(pl.col("ts") < datetime(2026, 4, 28, 15, tzinfo=UTC))
    )
    path = tmp_path / "rows.csv" if into_file else None
    there: list[bool] = []

    def recorded(*_: object, **__: object) -> bool:
        there.append(bool(path.read_text(encoding="utf-8") if path else capsys.readouterr().out))
        return True

    def once(*_: object, **how: Any) -> None:
        rows = pl.DataFrame({"symbol": ["AAA"], "asof": [datetime(2026, 6, 1, 14, 5, tzinfo=UTC)]})
        how["sink"](rows, rows, 0)

    monkeypatch.setattr(ledger, "keep_live", recorded)
    monkeypatch.setattr(live, "follow_bars", once)
    options: dict[str, Any] = dict.fromkeys(("start", "until", "ingest", "delay", "patience"))
    run = kp.load_pipeline("demo")
    assert follow_to(path, "csv", bundle, space, run, symbols=(), prices=False, record=True, **options) == 0
    assert there == [not into_file]
    if path:
        assert "AAA" in path.read_text(encoding="utf-8")
