"""In: a pipeline and the store. Out: fp32 beside fp16 and bf16 on a small budget, and which one to train in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from klinepred.cli.endings import format_options
from klinepred.cli.options import common, pipeline_option, read_pipeline, say, set_option, start
from klinepred.cli.output import table, write_json, write_rows, write_text
from klinepred.cli.train import overrides_of

if TYPE_CHECKING:
    import polars as pl

    from klinepred.trial.report import TrialReport


@click.command(
    epilog="\b\nExample: klinepred amp-check -p amp-case-study --steps 50", short_help="fp32 against AMP, small."
)
@pipeline_option
@set_option
@click.option("--device", help="cpu, cuda, cuda:1 … (default: cuda where it works).")
@click.option("--steps", type=click.IntRange(min=8), default=30, show_default=True, help="Optimiser steps of each.")
@format_options("table", "json", "csv")
@common
def command(
    pipeline: str,
    overrides: tuple[str, ...],
    device: str | None,
    steps: int,
    form: str,
    output: Path | None,
    workspace: Path,
    quiet: bool,
    verbose: bool,
) -> int:
    """Before the big run a small one: the same weights and batches in fp32, fp16 and bf16.

    Compares losses, gradients at the same weights, predictions, step time and peak memory, recommends a precision and
    says why. Numbers and a plot go into an MLflow run; what has passed is remembered, and `klinepred train` asks for it
    before it trains a large network. fp16 on a CPU is slow: only its gradients are compared there, unless
    --set train.precision=fp16 asks for more. docs/mixed-precision.md explains the columns. Exit code 1: not even fp32
    can be trained.
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    flags = overrides_of(amp=False, precision=None, epochs=None, device=device)
    run = read_pipeline(pipeline, (*overrides, *flags), space)

    from klinepred.cli.progress import TrainingBar
    from klinepred.pipeline import try_precisions

    report = try_precisions(run, space, steps=steps, progress=TrainingBar(quiet=quiet))
    if form == "json":
        write_json(report.to_dict(), output=output)
    elif form == "csv":
        write_rows(report.rows(), form="csv", output=output)
    else:
        write_text(report_text(report, plain=output is not None), output=output)
    say(f"run {report.run_id}; its plot is there as amp-check/amp-check.png: klinepred ui")
    return 0 if report.passed else 1


def report_text(report: TrialReport, *, plain: bool = False) -> str:
    """The tables and the recommendation, for a terminal."""
    import polars as pl

    trial, advice = report.trial, report.advice
    sequences, bars, features = trial.batch
    percent = [(pl.col(name) * 100).round(2).alias(f"{label} %") for name, label in _SHARES.items()]
    shown = report.rows().select(
        "precision",
        "steps",
        "skipped",
        pl.col("train_loss").round(5).alias("loss"),
        pl.col("val_loss").round(5).alias("val loss"),
        pl.col("cosine").round(6).alias("gradient cosine"),
        (pl.col("error") * 100).round(3).alias("off %"),
        percent[0],
        pl.col("diff_bps").round(4).alias("± bps"),
        percent[1],
        pl.col("step_ms").round(1).alias("step ms"),
        pl.col("speedup").round(2).alias("speed"),
        pl.col("peak_mib").round(0).alias("peak MiB"),
        pl.col("memory_ratio").round(2).alias("memory"),
    )
    title = (
        f"{report.pipeline.model.preset}, {trial.parameters:,} parameters, on {trial.device}: batches of {sequences}"
        f" x {bars} bars x {features} features; predictions of {trial.rows:,} rows"
    )
    text = table(shown, title=title, plain=plain)
    text += "".join(f"{name}: {verdict}\n" for name, verdict in advice.verdicts.items() if name != "fp32")
    text += "\n" + table(_pure(report), title="why not everything in fp16", plain=plain)
    add = f", klinepred train {advice.flags}" if advice.flags else ""
    word = f"train in {advice.precision}{add}" if report.passed else "do not train yet"
    return f"{text}\n{word}: {advice.reason}\n"


_SHARES = {"flushed": "vanished", "sign_flips": "sign flips"}


def _pure(report: TrialReport) -> pl.DataFrame:
    import polars as pl

    naive = report.trial.naive
    bare = "no loss scaling", "fp16 gradients as they come"
    half = "no fp32 master weights", f"AdamW on weights in fp16, learning rate {naive.lr:.2g}"
    rows = [
        (*bare, "entries that are exactly 0 and are not in fp32", naive.flushed),
        (*bare, "entries below fp16's normal numbers (6.1e-5): digits lost", naive.below_normal),
        (*half, "updates that are rounded away", naive.lost_updates),
    ]
    schema = {"without": pl.String(), "that is": pl.String(), "lost": pl.String(), "share %": pl.Float64()}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    share = pl.when(pl.col("share %").is_finite()).then((pl.col("share %") * 100).round(2))
    return frame.with_columns(share.alias("share %"))
