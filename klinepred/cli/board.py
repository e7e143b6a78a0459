"""In: news of work under way. Out: rows on a terminal, each with a bar, the steps done, the time spent and left."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, TextIO

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

DELAY_S: Final = 0.5
"""Work that is over sooner is not shown: nothing flickers."""


class Board:
    """Implements `klinepred.headway.Screen` on stderr. What others write to stderr meanwhile appears above the rows.

    Results go to stdout as ever. A terminal that goes away meanwhile is no failure of the work.
    """

    def __init__(self) -> None:
        self._rows = _Rows(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            _Steps(),
            TimeElapsedColumn(),
            _Left(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._above: _Above | None = None

    def open(self, what: str, *, total: int, done: int) -> int:
        """As `Screen.open`."""
        row = self._rows.add_task(what, total=total or None, completed=done, before=done, left_s=None, told_s=0.0)
        if self._above is None:
            with suppress(OSError):
                self._rows.start()
                self._rows.console.show_cursor(True)  # whoever kills the process finds a terminal that is whole
            self._above = _Above(self._rows.console, sys.stderr)
            sys.stderr = self._above
        return int(row)

    def move(self, row: int, *, what: str, done: int, left_s: float | None) -> None:
        """As `Screen.move`."""
        task = next((task for task in self._rows.tasks if task.id == row), None)
        if task is None:
            return
        spent = task.elapsed or 0.0
        steps = done - task.fields["before"]
        if left_s is None and task.total and steps > 0:
            left_s = spent / steps * (task.total - done)
        self._rows.update(TaskID(row), description=what, completed=done, left_s=left_s, told_s=spent)

    def close(self, row: int) -> None:
        """As `Screen.close`; with the last row nothing is left on the terminal."""
        if row in self._rows.task_ids:
            self._rows.remove_task(TaskID(row))
        if not self._rows.tasks:
            self.stop()

    def stop(self) -> None:
        """As `Screen.stop`."""
        if self._above is None:
            return
        stream, rest = self._above.rich_proxied_file, self._above.rest
        sys.stderr, self._above = stream, None
        with suppress(OSError):
            self._rows.stop()
            stream.write(rest)


class _Above(io.TextIOBase):
    """stderr while rows are shown: whole lines go above them. rich's own has no encoding, so click passes it by."""

    def __init__(self, console: Console, stream: TextIO) -> None:
        self.rich_proxied_file = stream  # where the console itself writes
        self._console, self.rest = console, ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.rich_proxied_file.encoding

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.rich_proxied_file.fileno()

    def write(self, text: str) -> int:
        *lines, self.rest = (self.rest + text).split("\n")
        if lines:
            self._console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)
        return len(text)


class _Rows(Progress):
    def get_renderables(self) -> Iterator[RenderableType]:
        """Only those that are worth a look."""
        yield self.make_tasks_table([task for task in self.tasks if (task.elapsed or 0.0) >= DELAY_S])


class _Steps(ProgressColumn):
    """`12/340`; nothing where it is not known how many there are."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.completed:,.0f}/{task.total:,.0f}" if task.total else "")


class _Left(ProgressColumn):
    """Time left, counted down between two steps."""

    def render(self, task: Task) -> Text:
        left = task.fields["left_s"]
        if left is None:
            return Text("")
        return Text(f"{clock(left - (task.elapsed or 0.0) + task.fields['told_s'])} left")


def clock(seconds: float) -> str:
    """`75` to `1:15`, hours where there are any."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"
