"""In: news of a training run. Out: a bar with loss, throughput and time left, and one line per epoch, on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from klinepred.training.progress import EpochNews, StepNews


class TrainingBar:
    """Implements `klinepred.training.progress.Progress`: a live bar on a terminal, epoch lines everywhere."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._quiet = quiet
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=24),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("{task.fields[speed]} bars/s"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]} left"),
            console=Console(stderr=True),
            transient=True,
            disable=quiet or not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("train", total=None, epoch="-", loss="-", speed="-", left="-")

    def begin(self, *, steps: int, done: int) -> None:
        """Before the first step."""
        self._bar.update(self._task, total=steps, completed=done)
        self._bar.start()

    def step(self, news: StepNews) -> None:
        """After every step."""
        self._bar.update(
            self._task,
            completed=news.step,
            epoch=f"{news.epoch}/{news.epochs}",
            loss=f"{news.loss:.4f}",
            speed=f"{news.bars_per_s:,.0f}",
            left=clock(news.eta_s),
        )

    def epoch(self, news: EpochNews) -> None:
        """After every epoch."""
        if self._quiet:
            return
        line = (
            f"epoch {news.epoch}/{news.epochs}  train loss {news.train_loss:.5f}  validation loss {news.val_loss:.5f}"
            f"  IC {news.val_ic:+.4f}  {news.seconds:.0f} s{'  best so far' if news.best else ''}"
        )
        if self._bar.disable:
            click.echo(line, err=True)
        else:
            self._bar.console.print(line, highlight=False, markup=False)

    def end(self) -> None:
        """Always, however training ends."""
        self._bar.stop()


def clock(seconds: float) -> str:
    """`75` to `1:15`, hours where there are any."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"
