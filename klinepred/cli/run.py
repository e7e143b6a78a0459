"""In: a pipeline. Out: the whole job: ingest, train, evaluate, predict, and where to look at it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from klinepred.cli.ledger import grade_ledger
from klinepred.cli.options import (
    allow_leaks_option,
    common,
    now_option,
    parse_ts,
    pipeline_option,
    read_pipeline,
    say,
    set_option,
    start,
)
from klinepred.cli.output import table
from klinepred.cli.train import overrides_of
from klinepred.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from klinepred.bars.report import IngestReport
    from klinepred.paths import Workspace
    from klinepred.settings import Pipeline

STEPS = ("ingest", "train", "evaluate", "predict")
CODES: Final = {"promoted": 0, "nothing new": 10, "not drifted": 11, "kept": 12, "failed": 1, "busy": 4}
"""Exit codes of a scheduled round with --exit-code; without it, 0 for the first four."""


@click.command(
    epilog="\b\nExample: klinepred run -p demo -w demo-workspace\nor, for cron: klinepred run --if-drifted -q",
    short_help="The whole pipeline.",
)
@pipeline_option
@set_option
@click.option(
    "--source", type=click.Choice(["yahoo", "files", "exchange", "simulate"]), help="Take bars from elsewhere."
)
@click.option("--amp", is_flag=True, help="Mixed precision: fp16 with loss scaling on CUDA, bf16 on the CPU.")
@click.option("--epochs", type=click.IntRange(min=1), help="Epochs (default: the pipeline's).")
@allow_leaks_option
@click.option("--skip", multiple=True, type=click.Choice(STEPS), help="Leave a step out; may be repeated.")
@click.option(
    "--scheduled", is_flag=True, help="A round for cron: train only on new bars, promote only what is better."
)
@click.option("--if-drifted", is_flag=True, help="As --scheduled, and train only if the champion has drifted.")
@click.option(
    "--exit-code", "telling", is_flag=True, help="With these two: 10 nothing new, 11 not drifted, 12 champion kept."
)
@now_option
@common
def command(
    pipeline: str,
    overrides: tuple[str, ...],
    source: str | None,
    amp: bool,
    epochs: int | None,
    allow_leaks: bool,
    skip: tuple[str, ...],
    scheduled: bool,
    if_drifted: bool,
    telling: bool,
    now: str | None,
    workspace: Path,
    quiet: bool,
    verbose: bool,
) -> int:
    """Run a pipeline from ingest to predictions; each step can be left out with --skip.

    Ends with the predictions, the verdict on the test part and the command that opens the MLflow UI. Exit code 3: some
    symbols failed in ingest or in prediction, each named.

    With --scheduled or --if-drifted it is a round of another kind: it takes new bars in, trains a candidate from the
    champion's weights, grades it, and promotes it if it beats the champion on bars that neither has learned from. One
    line on stdout says what happened. Exit code 0: the round is over; 1: a step failed; 3: some symbols failed in
    ingest; 4: another round of the pipeline is at work, nothing was done.
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    flags = overrides_of(amp=amp, precision=None, epochs=epochs)
    if source is not None:
        flags = (*flags, f'data.source="{source}"')
    run = read_pipeline(pipeline, (*overrides, *flags), space)
    clock = parse_ts(now, option="--now")
    if scheduled or if_drifted:
        _refuse(skip, allow_leaks=allow_leaks)
        return _round(run, space, if_drifted=if_drifted, take_in=not skip, now=clock, quiet=quiet, telling=telling)
    if telling:
        raise UsageError(
            "--exit-code",
            expected="--scheduled or --if-drifted beside it",
            got="neither",
            do="leave it out, or add one",
        )
    code = 0

    if "ingest" not in skip:
        from klinepred.bars.ingest import ingest

        say(click.style(f"1/4 ingest from {run.data.source}", bold=True))
        report = ingest(run.data, space, now=clock)
        grade_ledger(space, now=clock)
        tell_ingest(report)
        if report.exit_code == 1:
            return 1
        code = report.exit_code

    from klinepred.model.shelf import choose_model
    from klinepred.pipeline import evaluate_model, predict_bars, train_folds, train_model

    if "train" not in skip:
        from klinepred.cli.progress import TrainingBar

        say(click.style(f"2/4 train {run.model.preset}, at most {run.train.epochs} epochs", bold=True))
        bar = TrainingBar(quiet=quiet)
        if run.dataset.split.folds > 1:
            walk = train_folds(run, space, progress=bar, allow_leaks=allow_leaks)
            folders = [space.trained / one.model for one in walk.models]
        else:
            folders = [train_model(run, space, progress=bar, allow_leaks=allow_leaks).folder]
    else:
        folders = [choose_model(space, pipeline=run.name)]
    sentence = None
    if "evaluate" not in skip:
        from klinepred.cli.evaluate import verdict_text

        say(click.style("3/4 evaluate on the test part", bold=True))
        for number, folder in enumerate(folders, 1):
            graded = evaluate_model(folder, space, settings=run.evaluate, now=clock)
            if len(folders) > 1:
                say(f"fold {number} of {len(folders)}: {graded.evaluation.sentence}")
            say(verdict_text(graded.evaluation, sentence=False), nl=False)
            say(f"report: {graded.report}")
            sentence = graded.evaluation.sentence
    if "predict" not in skip:
        from klinepred.bars.store import store_version
        from klinepred.cli.ledger import keep_live
        from klinepred.cli.predict import short
        from klinepred.model.bundle import load_bundle

        say(click.style("4/4 predict the next bar", bold=True))
        bundle = load_bundle(folders[-1])
        version = store_version(space)
        answer = predict_bars(bundle, space, run, now=clock)
        click.echo(table(short(answer.rows), title=f"next bar by {bundle.name}"), nl=False)
        for symbol, reason in answer.failures.items():
            click.echo(f"no prediction: {symbol}: {reason}", err=True)
            code = 3
        if not keep_live(answer.rows, bundle, space, version=version, now=clock):
            code = 3
    if sentence:
        click.echo(f"\nverdict: {sentence}")
    click.echo(f"\nlook at the run: klinepred ui -w {shlex.quote(str(workspace))}")
    return code


def tell_ingest(report: IngestReport) -> None:
    """What ingest did on stderr; with -q only what failed."""
    from klinepred.bars.report import FAILED

    if report.exit_code == 1:
        click.echo(report.summary(), err=True)
    else:
        say(report.summary())
    for row in report.symbols:
        if row.message and row.status in FAILED:
            click.echo(f"{row.symbol}: {row.message}", err=True)
        elif row.message:
            say(f"{row.symbol}: {row.message}")


def _refuse(skip: tuple[str, ...], *, allow_leaks: bool) -> None:
    """What a scheduled round cannot be combined with."""
    wrong = [f"--skip {step}" for step in skip if step != "ingest"] + ["--allow-leaks"] * allow_leaks
    if wrong:
        raise UsageError(
            "a scheduled round",
            expected="no other steps left out than ingest, and no leaks allowed",
            got=", ".join(wrong),
            do="leave these out, or run the pipeline without --scheduled and --if-drifted",
        )


def _round(
    run: Pipeline,
    space: Workspace,
    *,
    if_drifted: bool,
    take_in: bool,
    now: datetime | None,
    quiet: bool,
    telling: bool,
) -> int:
    """A scheduled round, its one line, its exit code."""
    from klinepred.cli.progress import TrainingBar
    from klinepred.pipeline import run_round
    from klinepred.training.signals import TrainingStopped

    try:
        ended = run_round(
            run,
            space,
            if_drifted=if_drifted,
            take_in=take_in,
            now=now,
            progress=TrainingBar(quiet=quiet),
            on_bars=lambda: grade_ledger(space, now=now),
        )
    except TrainingStopped:
        click.echo("stopped: at train; the next round goes on from the checkpoint")
        raise
    click.echo(ended.line)
    if ended.partly and ended.word not in ("failed", "busy"):
        return 3
    return CODES[ended.word] if telling or ended.word in ("failed", "busy") else 0
