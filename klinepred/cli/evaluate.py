"""In: a trained model and the store. Out: the verdict on its test part, beside naive baselines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from klinepred.cli.endings import report_options
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
from klinepred.cli.output import table, write_json

if TYPE_CHECKING:
    import polars as pl

    from klinepred.evaluation.result import Evaluation


@click.command(epilog="\b\nExample: klinepred evaluate -p demo", short_help="The verdict on the test part.")
@click.argument("model", required=False, shell_complete=complete_models)
@pipeline_option
@set_option
@now_option
@report_options
@common
def command(
    model: str | None,
    pipeline: str,
    overrides: tuple[str, ...],
    now: str | None,
    form: str,
    output: Path | None,
    workspace: Path,
    quiet: bool,
    verbose: bool,
) -> int:
    """Grade MODEL (default: champion, else the pipeline's newest) on rows it never saw.

    The model stands beside zero, last return, an autoregression, ridge and gradient boosting on the same rows and
    features. The verdict is one of EDGE, NO EDGE, NOT ENOUGH DATA, SUSPICIOUSLY GOOD; docs/verdict.md has the rules.
    The report is written beside the model and into its MLflow run.
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    run = read_pipeline(pipeline, overrides, space)
    clock = parse_ts(now, option="--now")

    from klinepred.model.shelf import choose_model
    from klinepred.pipeline import evaluate_model

    folder = choose_model(space, pipeline=run.name, name=model)
    graded = evaluate_model(folder, space, settings=run.evaluate, now=clock)
    if form == "json" or output is not None:
        write_json(graded.evaluation.to_dict(), output=output)
    if form == "table":
        click.echo(verdict_text(graded.evaluation), nl=False)
    say(f"report: {graded.report}")
    return 0


def verdict_text(evaluation: Evaluation, *, sentence: bool = True) -> str:
    """Tables of model and baselines, of money, warnings and (unless told otherwise) the verdict, for a terminal."""
    span = f", sessions {evaluation.span[0]} to {evaluation.span[1]}" if evaluation.span else ""
    text = ""
    for target in dict.fromkeys((evaluation.target, "raw")):
        title = f"test part: {evaluation.rows:,} labels against the {target} target{span}"
        text += table(_beside(evaluation.table(target=target)), title=title)
    if evaluation.rows:
        text += table(_money(evaluation), title="money: within sessions, basis points; docs/verdict.md has the rules")
    whole = next(iter(evaluation.intervals), None)
    if whole is not None:
        text += f"80 % interval: {whole.coverage:.1%} of {whole.rows:,} raw returns inside; CRPS {_digits(whole.crps)},"
        text += f" {_digits(whole.crps_base)} without the forecast\n"
    if evaluation.rows:
        found = _digits(evaluation.ic.detectable_after(evaluation.looks))
        text += f"smallest IC this sample shows: {found}; permutation p {_digits(evaluation.permutation_p)}\n"
    for line in evaluation.warnings:
        text += f"mind: {line}\n"
    return f"{text}\n{evaluation.sentence}\n" if sentence else text


def _digits(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "-"


def _beside(scores: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    return scores.select(
        "forecast",
        "rows",
        pl.col("mse").round(4),
        (pl.col("r2") * 100).round(3).alias("R2 %"),
        pl.col("ic").round(4).alias("IC"),
        pl.col("ic_se").round(4).alias("± se"),
        pl.col("rank_ic").round(4).alias("rank IC"),
        pl.col("cs_ic").round(4).alias("cross-sect. IC"),
        pl.col("cs_rank_ic").round(4).alias("cross-sect. rank"),
        (pl.col("hit_rate") * 100).round(2).alias("hit %"),
        (pl.col("hit_base") * 100).round(2).alias("base %"),
    )


def _money(evaluation: Evaluation) -> pl.DataFrame:
    import polars as pl

    rows = [
        {
            "entered": way.entry,
            "trades": way.trades,
            "gross a trade": round(way.gross_bps, 3),
            f"net at {way.cost_bps:g}": round(way.net_bps, 3),
            "break-even a side": round(way.break_even_bps, 3),
            "turnover a session": round(way.turnover, 1),
            "deflated Sharpe": round(way.deflated_sharpe, 3),
        }
        for way in evaluation.money
    ]
    return pl.DataFrame(rows).with_columns(pl.selectors.float().fill_nan(None))
