"""In: news of a training run. Out: a row with loss, throughput and time left; a line per epoch on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from klinepred.headway import Work

if TYPE_CHECKING:
    from klinepred.training.progress import EpochNews, StepNews


class TrainingBar:
    """Implements `klinepred.training.progress.Progress`: a row while work is watched, epoch lines everywhere."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._work: Work | None = None

    def begin(self, *, steps: int, done: int) -> None:
        """Before the first step."""
        self.end()
        self._work = Work("training", total=steps, done=done)

    def step(self, news: StepNews) -> None:
        """After every step."""
        if self._work is not None:
            what = f"epoch {news.epoch}/{news.epochs}  loss {news.loss:.4f}  {news.bars_per_s:,.0f} bars/s"
            self._work.at(news.step, what=what, left_s=news.eta_s)

    def epoch(self, news: EpochNews) -> None:
        """After every epoch."""
        if not self._quiet:
            click.echo(
                f"epoch {news.epoch}/{news.epochs}  train loss {news.train_loss:.5f}"
                f"  validation loss {news.val_loss:.5f}  IC {news.val_ic:+.4f}  {news.seconds:.0f} s"
                f"{'  best so far' if news.best else ''}",
                err=True,
            )

    def end(self) -> None:
        """Always, however training ends."""
        if self._work is not None:
            self._work.end()
        self._work = None
