"""In: a model, the store, the ledger. Out: what has moved since its training, and one sentence on when to retrain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from klinepred.cli.endings import format_options
from klinepred.cli.options import (
    common,
    complete_models,
    now_option,
    parse_ts,
    pipeline_option,
    read_pipeline,
    say,
    set_option,
    start,
)
from klinepred.cli.output import write_json, write_rows

if TYPE_CHECKING:
    import polars as pl


@click.command(
    epilog="\b\nExample: klinepred drift -p demo --format json",
    short_help="Whether the world has moved since training.",
)
@pipeline_option
@set_option
@click.option(
    "--model",
    "model",
    metavar="M",
    help="Name or folder of a model (default: champion, else the newest).",
    shell_complete=complete_models,
)
@click.option("--since", "since", metavar="TS", help="Compare sessions from TS on (default: the newest 10).")
@now_option
@format_options()
@common
def command(
    pipeline: str,
    overrides: tuple[str, ...],
    model: str | None,
    since: str | None,
    now: str | None,
    form: str,
    output: Path | None,
    workspace: Path,
    quiet: bool,
    verbose: bool,
) -> int:
    """Compare the newest sessions with those a model was trained on, and say whether to train again.

    Population stability index of every feature and of the predictions, held against what chance does within the
    training span; the ledger's live IC against the test part's (docs/prediction.md). The sentence goes to stderr, with
    --format json it is in the answer. Exit code 0 whether or not there is drift: scripts read `drifted`.
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    run = read_pipeline(pipeline, overrides, space)
    clock, first = parse_ts(now, option="--now"), parse_ts(since, option="--since")

    from klinepred.model.shelf import choose_model

    folder = choose_model(space, pipeline=run.name, name=model)

    from klinepred.live.drift import measure
    from klinepred.model.bundle import load_bundle

    found = measure(space, run, load_bundle(folder), now=clock, since=first)
    if form == "json":
        write_json(found.to_dict(), output=output)
    elif form == "table":
        write_rows(short(found.table).head(20), form=form, output=output, title=f"model {found.model}")
        if found.table.height > 20:
            click.echo(f"the furthest 20 of {found.table.height} columns; all of them with --format csv|json|parquet")
    else:
        write_rows(found.table, form=form, output=output)
    (click.echo if form == "table" else say)(found.sentence)
    return 0


def short(table: pl.DataFrame) -> pl.DataFrame:
    """The columns a person reads."""
    import polars as pl

    return table.select(
        "name",
        pl.col("psi").round(3).alias("PSI"),
        pl.col("noise").round(3).alias("by chance"),
        pl.col("limit").round(3),
        pl.col("word").alias("is"),
    )
