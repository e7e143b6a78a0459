"""In: a pipeline, a search space. Out: a table of trials by validation loss, the best settings as a pipeline file."""

from __future__ import annotations

import logging
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from klinepred.cli.endings import FORMATS
from klinepred.cli.options import (
    allow_leaks_option,
    common,
    engine_options,
    pipeline_option,
    read_pipeline,
    say,
    set_option,
    start,
)
from klinepred.cli.output import write_rows
from klinepred.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from klinepred.pipeline.tune import Tuned


@click.command(
    epilog="\b\nExample: klinepred tune -p demo --trials 10"
    ' --space "train.lr=1e-4..1e-2|log" --space train.batch=32,64',
    short_help="Search settings.",
)
@pipeline_option
@set_option
@click.option("--trials", type=click.IntRange(1, 10_000), help="Configurations to try, pruned ones included.")
@click.option(
    "--space",
    "lines",
    multiple=True,
    metavar="A.B=RANGE",
    help="Search this setting: low..high, low..high|log or a,b,c; may be repeated (default: [tune] of the pipeline).",
)
@click.option(
    "--resume",
    is_flag=False,
    flag_value="last",
    metavar="[STUDY]",
    help="Go on with a study that was stopped (default: the last one); with more --trials, add to it.",
)
@engine_options
@click.option("--gpus-per-worker", "gpus", type=click.FloatRange(min=0), help="GPUs of each trial of --engine ray.")
@allow_leaks_option
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="Of the trials.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Pipeline file to write (default: pipelines/NAME-tuned.toml of the workspace).",
)
@click.option("--force", is_flag=True, help="Overwrite that file.")
@common
@click.pass_context
def command(
    ctx: click.Context,
    pipeline: str,
    overrides: tuple[str, ...],
    trials: int | None,
    lines: tuple[str, ...],
    resume: str | None,
    engine: str,
    workers: int | None,
    gpus: float | None,
    allow_leaks: bool,
    form: str,
    output: Path | None,
    force: bool,
    workspace: Path,
    quiet: bool,
    verbose: bool,
) -> int:
    """Try settings, and write the pipeline with those of the lowest validation loss.

    Every trial is a training as `klinepred train` does it, in an MLflow run below that of the study; a trial above the
    median of the others ends early. The test part stays closed, and every trial counts as a look at it when the verdict
    is made. The pipeline's own settings are tried first where they lie in the space. Ctrl-C keeps everything;
    --resume goes on. --engine ray tries several at once, on one machine or many.
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    chosen = ctx.get_parameter_source("pipeline") is ParameterSource.COMMANDLINE

    from klinepred.pipeline.trials import here
    from klinepred.pipeline.tune import resume_tuning, study_named, tune
    from klinepred.pipeline.tune_on_ray import computing
    from klinepred.pipeline.tuned_file import refuse_taken, tuned_place, write_tuned

    compute = computing(workers=workers, gpus=gpus or 0.0) if engine == "ray" else here
    if engine != "ray":
        for option, value in (("--num-workers", workers), ("--gpus-per-worker", gpus)):
            if value is not None:
                logging.getLogger("klinepred").warning("%s is ignored without --engine ray", option)
    if resume is not None:
        if overrides or lines or allow_leaks:
            raise UsageError(
                "--resume with other settings",
                expected="the study's own pipeline and space",
                got="--set, --space or --allow-leaks",
                do="leave them out, or begin another study without --resume",
            )
        study = study_named(space, resume, pipeline=read_pipeline(pipeline, (), space).name if chosen else None)
        place = tuned_place(space, study.stem.rpartition("-tune-")[0], output)
        refuse_taken(place, force=force)
        tuned = resume_tuning(space, study.stem, trials=trials, compute=compute)
    else:
        run = read_pipeline(pipeline, overrides, space)
        place = tuned_place(space, run.name, output)
        refuse_taken(place, force=force)
        tuned = tune(run, space, lines=lines, trials=trials, compute=compute, allow_leaks=allow_leaks)
    write_tuned(tuned, place, force=force)
    write_rows(_rows(tuned), form=form, output=None)
    own = f" -w {shlex.quote(str(workspace))}" if str(workspace) != "." else ""
    shown = shlex.quote(os.path.relpath(place) if not place.is_absolute() or _below(place) else str(place))
    say(f"best settings: {shown}")
    say(f"next: klinepred train -p {shown}{own}")
    return 0


def _below(place: Path) -> bool:
    return place.is_relative_to(Path.cwd())


def _rows(tuned: Tuned) -> pl.DataFrame:
    """One row a trial: number, outcome, loss, epochs, its settings, its run; complete ones first, the best on top."""
    import polars as pl

    keys = list(tuned.trials[0].values)
    about = [(row.number, row.outcome, row.loss, row.epochs) for row in tuned.trials]
    columns = {"trial": pl.Int64, "outcome": pl.String, "val_loss": pl.Float64, "epochs": pl.Int64}
    frame = pl.DataFrame(about, schema=columns, orient="row")
    values = [pl.Series(key, [row.values[key] for row in tuned.trials]) for key in keys]
    return frame.with_columns(*values, pl.Series("run_id", [row.run_id for row in tuned.trials], dtype=pl.String))
