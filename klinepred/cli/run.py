"""In: a pipeline. Out: the whole job: ingest, train, evaluate, predict, and where to look at it."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from klinepred.cli.ledger import grade_ledger
from klinepred.cli.options import (
    allow_leaks_option,
    common,
    now_option,
    parse_ts,
    pipeline_option,
    read_pipeline,
    set_option,
    start,
)
from klinepred.cli.output import table
from klinepred.cli.train import overrides_of

STEPS = ("ingest", "train", "evaluate", "predict")


@click.command(epilog="Example: klinepred run -p demo -w demo-workspace", short_help="The whole pipeline.")
@pipeline_option
@set_option
@click.option(
    "--source", type=click.Choice(["yahoo", "files", "exchange", "simulate"]), help="Take bars from elsewhere."
)
@click.option("--amp", is_flag=True, help="Mixed precision: fp16 with loss scaling on CUDA, bf16 on the CPU.")
@click.option("--epochs", type=click.IntRange(min=1), help="Epochs (default: the pipeline's).")
@allow_leaks_option
@click.option("--skip", multiple=True, type=click.Choice(STEPS), help="Leave a step out; may be repeated.")
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
    now: str | None,
    workspace: Path,
    quiet: bool,
    verbose: bool,
) -> int:
    """Run a pipeline from ingest to predictions; each step can be left out with --skip.

    Ends with the predictions, the verdict on the test part and the command that opens the MLflow UI. Exit code 3: some
    symbols failed in ingest or in prediction, each named.
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    flags = overrides_of(amp=amp, precision=None, epochs=epochs)
    if source is not None:
        flags = (*flags, f'data.source="{source}"')
    run = read_pipeline(pipeline, (*overrides, *flags), space)
    clock = parse_ts(now, option="--now")
    code = 0

    def say(text: str) -> None:
        if not quiet:
            click.echo(click.style(text, bold=True), err=True)

    if "ingest" not in skip:
        from klinepred.bars.ingest import ingest

        say(f"1/4 ingest from {run.data.source}")
        report = ingest(run.data, space, now=clock)
        grade_ledger(space, now=clock)
        click.echo(report.summary(), err=True)
        for row in report.symbols:
            if row.message:
                click.echo(f"{row.symbol}: {row.message}", err=True)
        if report.exit_code == 1:
            return 1
        code = report.exit_code

    from klinepred.model.shelf import choose_model
    from klinepred.pipeline import evaluate_model, predict_bars, train_folds, train_model

    if "train" not in skip:
        from klinepred.cli.progress import TrainingBar

        say(f"2/4 train {run.model.preset}, at most {run.train.epochs} epochs")
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

        say("3/4 evaluate on the test part")
        for number, folder in enumerate(folders, 1):
            graded = evaluate_model(folder, space, settings=run.evaluate, now=clock)
            if len(folders) > 1:
                click.echo(f"fold {number} of {len(folders)}: {graded.evaluation.sentence}", err=True)
            click.echo(verdict_text(graded.evaluation, sentence=False), err=True, nl=False)
            click.echo(f"report: {graded.report}", err=True)
            sentence = graded.evaluation.sentence
    if "predict" not in skip:
        from klinepred.bars.store import store_version
        from klinepred.cli.ledger import keep_live
        from klinepred.cli.predict import short
        from klinepred.model.bundle import load_bundle

        say("4/4 predict the next bar")
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
