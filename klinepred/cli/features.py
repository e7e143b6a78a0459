"""In: the name of a view. Out: the catalogue of the features, or their values on stored bars."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from klinepred.cli.endings import format_options
from klinepred.cli.group import Group
from klinepred.cli.options import (
    common,
    engine_options,
    opened_engine,
    parse_as_of,
    parse_span,
    parse_symbols,
    pipeline_option,
    read_pipeline,
    set_option,
)
from klinepred.cli.options import start as begin
from klinepred.cli.output import write_rows
from klinepred.errors import StoreError

if TYPE_CHECKING:
    import polars as pl

    from klinepred.paths import Workspace
    from klinepred.settings import Pipeline


@click.group(cls=Group, epilog="\b\nExample: klinepred features show --symbols AAPL --start 2025-06-10 --format csv")
def command() -> None:
    """List the features, show their values on stored bars, bring the kept ones up to date."""


@command.command("list", epilog="\b\nExample: klinepred features list --format json")
@common
@pipeline_option
@set_option
@format_options()
def list_command(
    *,
    workspace: Path,
    quiet: bool,
    verbose: bool,
    pipeline: str,
    overrides: tuple[str, ...],
    form: str,
    output: Path | None,
) -> None:
    """The catalogue: name, formula, from which bar shown, lookback, source."""
    from klinepred.features.catalogue import catalogue
    from klinepred.features.custom import features_for

    space = begin(workspace, quiet=quiet, verbose=verbose)
    features = features_for(read_pipeline(pipeline, overrides, space).features)
    rows = catalogue(features)
    write_rows(rows.drop("family", "source") if form == "table" else rows, form=form, output=output)
    logging.getLogger("klinepred.features").info(
        f"{rows.height} features, set {features.name}, fingerprint {features.fingerprint};"
        f" a model needs {features.lookback_bars} bars and {features.lookback_sessions} sessions before its first row"
    )


@command.command(
    "show",
    epilog="\b\nExample: klinepred features show --symbols AAPL --start 2025-06-10 --format parquet -o aapl.parquet",
)
@common
@pipeline_option
@set_option
@click.option("--symbols", metavar="A,B|@FILE", help="Only these (default: the pipeline's that are stored).")
@click.option("--start", metavar="TS", help="From this moment, UTC. Earlier bars still count.")
@click.option("--end", metavar="TS", help="Before this moment, UTC.")
@click.option("--as-of", "as_of", metavar="VERSION|TS", help="The store as it was: a version, or a moment in UTC.")
@click.option("--last", type=click.IntRange(1, 10_000), default=5, show_default=True, help="Bars a table shows.")
@format_options()
def show_command(
    *,
    workspace: Path,
    quiet: bool,
    verbose: bool,
    pipeline: str,
    overrides: tuple[str, ...],
    symbols: str | None,
    start: str | None,
    end: str | None,
    as_of: str | None,
    last: int,
    form: str,
    output: Path | None,
) -> None:
    """Of each stored bar symbol, ts, close and every feature; the cross-section is over the pipeline's symbols.

    A table shows the last bars side by side; every other format has a row for each bar.
    """
    import polars as pl

    from klinepred.bars.store import scan_bars
    from klinepred.features.build import build_features
    from klinepred.features.custom import features_for

    space = begin(workspace, quiet=quiet, verbose=verbose)
    run = read_pipeline(pipeline, overrides, space)
    features = features_for(run.features)
    moment, (low, high) = parse_as_of(as_of), parse_span(start, end)
    wanted = parse_symbols(symbols)
    universe = _universe(run, space, wanted=wanted, as_of=moment)
    shown = wanted or universe
    bars = scan_bars(space, symbols=tuple(dict.fromkeys((*universe, *shown))), end=high, as_of=moment)
    frame = build_features(bars, features, universe=universe).frame
    frame = frame.filter(pl.col("symbol").is_in(shown))
    if low is not None:
        frame = frame.filter(pl.col("ts") >= low)
    if form == "table":
        title = f"last {min(last, frame.height)} of {frame.height} rows; all of them with --format csv|json|parquet"
        write_rows(_side_by_side(frame.tail(last)), form=form, output=output, title=title)
    else:
        write_rows(frame, form=form, output=output)


@command.command("build", epilog="\b\nExample: klinepred features build -p us-equities-5m")
@common
@pipeline_option
@set_option
@engine_options
@format_options()
def build_command(
    *,
    workspace: Path,
    quiet: bool,
    verbose: bool,
    pipeline: str,
    overrides: tuple[str, ...],
    engine: str,
    workers: int | None,
    form: str,
    output: Path | None,
) -> None:
    """Bring the kept features of the pipeline's symbols up to date: only what changed since last time is computed.

    `train`, `evaluate` and `predict` do so themselves; this does it alone, and with --engine ray on a cluster whose
    machines all see the workspace. The result is the same bit for bit.
    """
    import polars as pl

    from klinepred.pipeline import refresh_features

    space = begin(workspace, quiet=quiet, verbose=verbose)
    run = read_pipeline(pipeline, overrides, space)
    with opened_engine(engine, workers) as who:
        done = refresh_features(run, space, engine=who)
    row = {
        "symbols": len(done.calendars),
        "bars": done.bars,
        "computed": done.computed,
        "features": len(done.features.names),
        "fingerprint": done.features.fingerprint,
    }
    write_rows(pl.DataFrame([row]), form=form, output=output)


def _side_by_side(rows: pl.DataFrame) -> pl.DataFrame:
    """A column per bar, a row per feature."""
    import polars as pl

    heads = rows.select(pl.format("{} {}", "symbol", pl.col("ts").dt.strftime("%Y-%m-%d %H:%MZ"))).to_series()
    values = rows.drop("symbol", "ts").cast(pl.Float64)
    if rows.is_empty():
        return pl.DataFrame({"feature": values.columns})
    return values.transpose(include_header=True, header_name="feature", column_names=heads.to_list())


def _universe(
    run: Pipeline, space: Workspace, *, wanted: tuple[str, ...], as_of: int | datetime | None
) -> tuple[str, ...]:
    """The pipeline's symbols in the store as it was; where none of its calendar is, those beside `wanted`."""
    from klinepred.bars.store import list_symbols
    from klinepred.pipeline import choose_symbols

    stored = list_symbols(space, as_of=as_of)
    there = set(stored.get_column("symbol").to_list())
    try:
        chosen = choose_symbols(run, space)
    except StoreError:
        kinds = stored.filter(stored.get_column("symbol").is_in(list(wanted))).select("calendar", "hours").unique()
        chosen = tuple(stored.join(kinds, on=["calendar", "hours"], how="semi").get_column("symbol").sort())
        if not chosen:
            raise
        logging.getLogger("klinepred.features").warning(
            "no symbol of pipeline %s is stored: the cross-section is taken over the %d of the same calendar",
            run.name,
            len(chosen),
        )
    return tuple(symbol for symbol in chosen if symbol in there)
