"""In: a pipeline, a workspace, the clock. Out: `Round`: bars taken in, a model trained on them, promoted if better."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from klinepred.bars.store import list_symbols, store_version
from klinepred.engine.launched import refuse_several
from klinepred.errors import KlinepredError, ModelError, StoreError, UsageError
from klinepred.model.promotion import promote, stands_against
from klinepred.model.shelf import champions
from klinepred.paths import Workspace
from klinepred.pipeline.candidate import killed_candidate, train_candidate
from klinepred.pipeline.judge import compare_models, evaluate_model
from klinepred.pipeline.rounds import Busy, Round, Word, begun_before, forget, last_over, turn, write_down
from klinepred.pipeline.symbols import choose_symbols
from klinepred.schema import BAR
from klinepred.settings import Pipeline

if TYPE_CHECKING:
    from klinepred.model.bundle import ModelBundle
    from klinepred.training.progress import Progress

log = logging.getLogger("klinepred.pipeline")

Say = Callable[[str], None]


def run_round(
    run: Pipeline,
    space: Workspace,
    *,
    if_drifted: bool,
    take_in: bool = True,
    now: datetime | None = None,
    progress: Progress | None = None,
    say: Say = log.info,
    on_bars: Callable[[], None] | None = None,
) -> Round:
    """Take bars in; if there are new ones, and the champion has drifted from them, train a candidate from its weights,
    grade it, and promote it if it beats the champion on bars that neither has learned from.

    Without a champion the candidate begins from random weights, and the rules of promotion alone decide. A round that
    was killed is gone on with by the next: its training is resumed, or its trained model graded. How a round ended
    goes into the pipeline's journal (`klinepred.pipeline.rounds`).

    Parameters
    ----------
    if_drifted
        Train only if the newest bars, or the forecasts of them, have drifted from what the champion learned.
    take_in
        Whether to ingest first.
    now
        The clock, for replay: bars not finished by then are held back.
    say
        Told of each step as it begins.
    on_bars
        Called once bars were taken in.

    Returns
    -------
    Round
        `failed` where a step could not be done; the error is logged in full.

    Raises
    ------
    UsageError
        The pipeline cannot be trained anew on a schedule, or runs cannot be recorded.
    TrainingStopped
        A stop signal came in training; the next round goes on from its checkpoint.
    """
    from klinepred.training.runs import run_store

    _refuse(run)
    run_store(space)
    try:
        with turn(space, run.name):
            steps = _Steps(run, space, if_drifted=if_drifted, now=now, progress=progress, say=say, on_bars=on_bars)
            ended = steps.go(take_in)
            write_down(space, run.name, ended, at=now or datetime.now(UTC))
            return ended
    except Busy as error:
        return Round("busy", f"another round of {run.name} is at work: {error.got}", "ingest")


class _Steps:
    """One round, step by step."""

    def __init__(
        self,
        run: Pipeline,
        space: Workspace,
        *,
        if_drifted: bool,
        now: datetime | None,
        progress: Progress | None,
        say: Say,
        on_bars: Callable[[], None] | None,
    ) -> None:
        self.on_bars = on_bars
        self.run, self.space, self.now, self.progress, self.say = run, space, now, progress, say
        self.if_drifted = if_drifted
        self.step, self.partly = "ingest", False
        self.version: int | None = None
        self.bars, self.last_bar = 0, ""
        self.candidate = ""

    def go(self, take_in: bool) -> Round:
        from klinepred.training.signals import TrainingStopped

        try:
            ended = self._go(take_in)
        except TrainingStopped:
            raise
        except (KlinepredError, OSError, MemoryError) as error:
            log.error("%s", error)  # noqa: TRY400  # for the user, without a traceback
            reason = f"{error.summary}: {error.got}" if isinstance(error, KlinepredError) else str(error)
            ended = self._ended("failed", f"at {self.step}: {reason}")
        if (ended.word, ended.step) != ("failed", "ingest"):  # a killed training waits until bars can be had again
            forget(self.space, self.run.name)
        return ended

    def _go(self, take_in: bool) -> Round:
        if take_in:
            from klinepred.bars.ingest import ingest  # other commands load this room without taking bars in

            self._begin("ingest", f"from {self.run.data.source}")
            report = ingest(self.run.data, self.space, now=self.now)
            log.info("%s", report.summary())
            for row in report.symbols:
                if row.message:
                    log.info("%s: %s", row.symbol, row.message)
            if report.exit_code == 1:
                return self._ended("failed", f"at ingest: {report.summary()}")
            self.partly = report.exit_code == 3
            if self.on_bars is not None:
                self.on_bars()
        self._look()
        self.version = store_version(self.space)
        before = begun_before(self.space, self.run.name)
        if before is not None and before.settings == self.run.model_dump(mode="json"):
            self.step = "train"
            folder = killed_candidate(before, self.run, self.space, progress=self.progress)
            if folder is not None:
                # what came since waits for the next round
                self.version, self.bars, self.last_bar = before.store_version, before.bars, before.last_bar
                return self._judge(folder, before=before.champion)
        over = last_over(self.space, self.run.name)
        if over is not None and (over.bars, over.last_bar) == (self.bars, self.last_bar):
            return self._ended("nothing new", f"no bars since the last round; the newest ends at {self.last_bar}")
        champion = self._champion()
        if self.if_drifted and champion is not None:
            self._begin("drift", f"of {champion.name} on the newest bars")
            from klinepred.live.drift import measure

            drift = measure(self.space, self.run, champion, now=self.now)
            if not drift.drifted:
                return self._ended("not drifted", drift.sentence)
            log.info("%s", drift.sentence)
        self._begin("train", f"{self.run.model.preset} from {champion.name if champion else 'random weights'}")
        folder = train_candidate(
            champion,
            self.run,
            self.space,
            version=self.version,
            bars=self.bars,
            last_bar=self.last_bar,
            progress=self.progress,
        )
        return self._judge(folder, before=champion.name if champion else "")

    def _begin(self, step: str, what: str) -> None:
        self.step = step
        self.say(f"{step} {what}")

    def _look(self) -> None:
        """Count the bars of the pipeline's symbols.

        Raises
        ------
        StoreError
            There are none, or some from after `now`: they would be learned from.
        """
        symbols = choose_symbols(self.run, self.space)
        table = list_symbols(self.space).filter(pl.col("symbol").is_in(symbols))
        end: datetime = table.select(pl.col("last_ts").max() + BAR).item()
        if self.now is not None and end > self.now:
            raise StoreError(
                f"replay of a round at {self.now:%Y-%m-%dT%H:%MZ}",
                expected="a store without bars from after that moment",
                got=f"bars up to {end:%Y-%m-%dT%H:%MZ}",
                do="replay in a workspace of its own, from the first round on, or leave --now out",
            )
        self.bars, self.last_bar = int(table.get_column("bars").sum()), f"{end:%Y-%m-%dT%H:%M}Z"

    def _champion(self) -> ModelBundle | None:
        from klinepred.model.bundle import load_bundle

        name = champions(self.space).get(self.run.name)
        return load_bundle(self.space.trained / name) if name else None

    def _judge(self, folder: Path, *, before: str) -> Round:
        """Grade the candidate; promote it if it beats the champion of `before` (empty = there was none)."""
        self.candidate = folder.name
        self._begin("evaluate", folder.name)
        graded = evaluate_model(folder, self.space, settings=self.run.evaluate)
        log.info("%s", graded.evaluation.sentence)
        name = champions(self.space).get(self.run.name)
        if name is None:
            return self._promote(folder, f"{folder.name} is the first champion of {self.run.name}")
        if name == folder.name:  # a round was killed when all but its end was done
            return self._promote(folder, f"{folder.name}{f' in place of {before}' if before else ''}")
        self._begin("compare", f"with the champion, {name}")
        champion = self.space.trained / name
        found = compare_models((folder, champion), self.space, settings=self.run.evaluate)
        if found.outcome != "A":
            return self._ended("kept", f"{name} stays the champion: {found.sentence}")
        if stands_against(folder, champion):  # whose verdict may be of bars long gone
            evaluate_model(champion, self.space, settings=self.run.evaluate)
        return self._promote(folder, f"{folder.name} in place of {name}: {found.sentence}")

    def _promote(self, folder: Path, sentence: str) -> Round:
        from klinepred.training.registry import crown

        self.step = "promote"
        try:
            done = promote(self.space, folder, now=self.now)
        except ModelError as error:
            stays = champions(self.space).get(self.run.name)
            return self._ended(
                "kept", f"{f'{stays} stays the champion' if stays else 'no champion'}: {folder.name}: {error.got}"
            )
        crown(self.space, pipeline=self.run.name, run_id=done.run_id)
        return self._ended("promoted", f"{sentence} (verdict {done.verdict})")

    def _ended(self, word: Word, sentence: str) -> Round:
        try:
            champion = champions(self.space).get(self.run.name, "")
        except ModelError:
            champion = ""
        return Round(
            word=word,
            sentence=sentence,
            step=self.step,
            bars=self.bars,
            last_bar=self.last_bar,
            store_version=self.version,
            champion=champion,
            candidate=self.candidate,
            partly=self.partly,
        )


def _refuse(run: Pipeline) -> None:
    """A schedule needs parts that move on with the bars, and one process."""
    refuse_several(
        f"scheduled rounds of pipeline {run.name}", do="start klinepred run by itself; torchrun is for klinepred train"
    )
    split = run.dataset.split
    wrong = f"{split.folds} folds" if split.folds > 1 else f"train_end = {split.train_end}" if split.train_end else ""
    if wrong:
        raise UsageError(
            f"scheduled rounds of pipeline {run.name}",
            expected="dataset.split by shares (train, validation) in one fold: such parts move on with the bars",
            got=wrong,
            do="leave train_end and validation_end out of the pipeline, and set dataset.split.folds = 1",
        )
