"""In: the ledger of live predictions, the stored bars. Out: how the predictions did, as a table, CSV, JSON, Parquet."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from klinepred.cli.endings import format_options
from klinepred.cli.options import common, now_option, parse_ts, start
from klinepred.cli.output import write_rows
from klinepred.errors import KlinepredError, StoreError
from klinepred.paths import Workspace

if TYPE_CHECKING:
    import polars as pl

    from klinepred.live.score import By

log = logging.getLogger("klinepred.live")


@click.command(
    epilog="\b\nExample: klinepred grade --by session --format json",
    short_help="Grade the live predictions of the ledger.",
)
@click.option("--model", "model", metavar="M", help="Only this model: its name, or the first digits of its run.")
@click.option(
    "--by",
    type=click.Choice(["model", "symbol", "session"]),
    default="model",
    show_default=True,
    help="One row for each.",
)
@click.option("--rows", "each", is_flag=True, help="Every prediction with its grade, or the reason why it has none.")
@click.option("--no-mlflow", "no_mlflow", is_flag=True, help="Leave the models' MLflow runs as they are.")
@now_option
@format_options()
@common
def command(
    model: str | None,
    by: By,
    each: bool,
    no_mlflow: bool,
    now: str | None,
    form: str,
    output: Path | None,
    workspace: Path,
    quiet: bool,
    verbose: bool,
) -> int:
    """Grade live predictions whose bar has come, and say how all of them did (with --now: those made by then).

    IC with its standard error by session, hit rate beside the rate of the more frequent sign, share of outcomes inside
    the 80 % interval. Scores of finished sessions go to each model's MLflow run as live/... (docs/mlflow.md).
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    clock = parse_ts(now, option="--now")

    from klinepred.live.grade import grade_open
    from klinepred.live.score import read_ledger, score

    done = grade_open(space, now=clock)
    if done.sentence():
        log.info("%s", done.sentence())
    ledger = _of(read_ledger(space, now=clock), model, space)
    frame = ledger if each else score(ledger, by=by)
    if form == "table":
        shown = _few(frame) if each else _short(frame, by=by)
        write_rows(shown, form=form, output=output, title="live predictions", last=40)
    else:
        write_rows(frame, form=form, output=output)
    _mind_rehearsals(ledger)
    if not no_mlflow:
        _log(ledger, space, now=clock)
    return 0


def _of(ledger: pl.DataFrame, model: str | None, space: Workspace) -> pl.DataFrame:
    """The rows of one model.

    Raises
    ------
    StoreError
        There are none.
    """
    import polars as pl

    names = ledger.get_column("model").unique().sort().to_list()
    chosen = ledger
    if model is not None:
        chosen = ledger.filter(pl.col("model") == model)
        if chosen.is_empty() and len(model) >= 8:
            chosen = ledger.filter(pl.col("run_id").str.starts_with(model.lower()))
    if chosen.height:
        return chosen
    raise StoreError(
        f"ledger {space.data / 'ledger'}",
        expected="live predictions" + ("" if model is None else f" of model {model}"),
        got=f"those of {', '.join(names[:5])}{' …' if len(names) > 5 else ''}" if names else "none yet",
        do="name one of these with --model" if names else "run klinepred predict while the bar it predicts is to come",
    )


def _short(frame: pl.DataFrame, *, by: By) -> pl.DataFrame:
    import polars as pl

    keys = {"model": [], "symbol": ["symbol"], "session": ["session"]}[by]
    return frame.select(
        "model",
        *keys,
        "target",
        "predictions",
        "graded",
        "ungradable",
        *([] if by == "session" else ["sessions"]),
        pl.col("ic").round(4).alias("IC"),
        *([] if by == "session" else [pl.col("ic_se").round(4).alias("± se")]),
        (pl.col("hit_rate") * 100).round(2).alias("hit %"),
        (pl.col("hit_base") * 100).round(2).alias("base %"),
        (pl.col("coverage80") * 100).round(1).alias("in 80 % interval"),
    )


def _few(rows: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    return rows.select(
        "model",
        "symbol",
        "bar_ts",
        "target_ts",
        pl.col("expected_return_bps").round(2).alias("expected bps"),
        pl.col("realised_bps").round(2).alias("realised bps"),
        pl.col("raw_bps").round(2).alias("raw bps"),
        "hit",
        "inside",
        "revision",
        "reason",
    )


def _mind_rehearsals(ledger: pl.DataFrame) -> None:
    import polars as pl

    from klinepred.schema import BAR

    late = ledger.filter(pl.col("written_at") >= pl.col("target_ts") + BAR).height
    if late:
        log.warning(
            "%d of %d predictions were made with --now when their bar had long finished: a rehearsal, not live",
            late,
            ledger.height,
        )


def _log(ledger: pl.DataFrame, space: Workspace, *, now: datetime | None) -> None:
    from klinepred.live.series import log_live

    try:
        added = log_live(ledger, space, now=now)
    except KlinepredError as error:
        log.warning("graded, but MLflow was not told: %s", error)
        return
    for name, count in added.items():
        if count is None:
            log.warning("the MLflow run of model %s is not in the store: its live scores are not recorded there", name)
        elif count:
            log.info("MLflow: %d new points in the run of model %s", count, name)
