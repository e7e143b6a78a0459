"""In: work under way, a terminal. Out: rows with steps and time left above which lines appear; nothing elsewhere."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import click
import pytest

from klinepred.cli import main
from klinepred.cli.board import Board, clock


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def terminal_for(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """From now on stderr is a terminal; to be asked for by the test itself, since pytest sets stderr anew before it."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("klinepred.cli.board.DELAY_S", 0.0)
    return stream


def test_a_row_shows_its_steps_and_the_time_left_and_lines_appear_above(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    board = Board()
    whole = board.open("models [A]", total=4, done=0)
    part = board.open("days", total=0, done=0)
    board.move(whole, what="models [A]", done=1, left_s=75.0)
    click.echo("half a line, ", err=True, nl=False)
    click.echo("and its end", err=True)
    board._rows.refresh()
    shown = terminal.getvalue()
    assert "models [A]" in shown
    assert "1/4" in shown
    assert "1:15 left" in shown
    assert "half a line, and its end\n" in shown
    board.close(part)
    click.echo("no end", err=True, nl=False)
    board.close(whole)
    assert sys.stderr is terminal
    assert terminal.getvalue().endswith("no end")
    board.close(whole)
    board.move(whole, what="x", done=2, left_s=None)  # what has ended is not shown again
    board.stop()


def test_time_left_is_that_of_the_steps_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal_for(monkeypatch)
    board = Board()
    row = board.open("days", total=40, done=20)
    (task,) = board._rows.tasks
    task.start_time = board._rows.get_time() - 10.0
    board.move(row, what="days", done=25, left_s=None)
    assert task.fields["left_s"] == pytest.approx(30.0, abs=5.0)  # 5 steps took 10 s, 15 are left
    board.stop()


def test_a_terminal_that_is_gone_does_not_end_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> int:
        raise OSError(5, "Input/output error")

    terminal = terminal_for(monkeypatch)
    board = Board()
    monkeypatch.setattr(terminal, "write", gone)
    row = board.open("days", total=2, done=0)
    board.move(row, what="days", done=1, left_s=None)
    board.close(row)
    assert sys.stderr is terminal


@pytest.mark.parametrize(
    ("words", "term", "shown"), [((), "xterm", True), (("-q",), "xterm", False), ((), "dumb", False)]
)
def test_rows_are_for_terminals_and_not_for_the_quiet(
    words: tuple[str, ...],
    term: str,
    shown: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal = terminal_for(monkeypatch)
    monkeypatch.setenv("TERM", term)
    span = ("--start", "2026-03-02", "--end", "2026-03-06", "--set", "data.simulate.symbols=1")
    assert main(["ingest", "-p", "demo", *span, "-w", str(tmp_path), *words]) == 0
    assert ("months simulated" in terminal.getvalue()) is shown
    assert "months simulated" not in capsys.readouterr().out
    assert sys.stderr is terminal


def test_rows_are_taken_away_before_a_command_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "/data/x")

    terminal = terminal_for(monkeypatch)
    monkeypatch.setattr("klinepred.bars.ingest._take", full)
    assert main(["ingest", "-p", "demo", "--set", "data.simulate.symbols=1", "-w", str(tmp_path)]) == 1
    assert sys.stderr is terminal
    assert "error: /data/x\n" in terminal.getvalue()
    assert terminal.getvalue().rstrip("\x1b[?25h\r").endswith("\x1b[2K")


def test_seconds_are_a_clock() -> None:
    assert [clock(seconds) for seconds in (-3.0, 75.4, 3725.0)] == ["0:00", "1:15", "1:02:05"]
