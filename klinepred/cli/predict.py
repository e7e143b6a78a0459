"""In: a model and the store. Out: the next bar of every symbol as table, CSV, JSON or Parquet."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from klinepred.cli.endings import format_options
from klinepred.cli.options import (
    common,
    complete_models,
    now_option,
    parse_symbols,
    parse_ts,
    pipeline_option,
    read_pipeline,
    set_option,
    start,
)
from klinepred.cli.output import write_rows
from klinepred.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

ORDERS = ("symbol", "expected", "size", "p_up", "width")
PRICES = ("last_close", "expected_close", "lo80_close", "hi80_close")


@click.command(epilog="\b\nExample: klinepred predict --top 5 --format json", short_help="Predict the next bar.")
@pipeline_option
@set_option
@click.option(
    "--model",
    "model",
    help="Name or folder of a model (default: champion, else the pipeline's newest).",
    shell_complete=complete_models,
)
@click.option("--symbols", "symbols", help="A,B or @FILE (default: the pipeline's symbols in the store).")
@click.option("--as-of", "as_of", metavar="TS", help="Use bars finished by TS.")
@click.option("--start", "first", metavar="TS", help="Predict every bar opening at or after TS (with --end).")
@click.option("--end", "last", metavar="TS", help="... and before TS.")
@now_option
@click.option("--sort", "order", type=click.Choice(ORDERS), help="Largest first (symbol: by name, the default).")
@click.option("--top", "top", type=click.IntRange(1), metavar="N", help="Only the first N rows (default order: size).")
@click.option(
    "--follow",
    "follow",
    is_flag=True,
    is_eager=True,  # the ending of -o means another thing with it
    help="Go on: predict each bar as it closes, until a signal.",
)
@click.option("--until", "until", metavar="TS", help="With --follow: end after the bar that closes at TS.")
@click.option(
    "--ingest/--no-ingest",
    "ingest",
    default=None,
    help="With --follow: ask the pipeline's source for each bar (default: yes; in a replay with --now no).",
)
@click.option(
    "--delay", "delay", type=click.FloatRange(0, 240), metavar="S", help="Seconds from a close to the first look (10)."
)
@click.option(
    "--patience",
    "patience",
    type=click.FloatRange(0, 290),
    metavar="S",
    help="Seconds from a close until symbols that are late are left out (60).",
)
@click.option("--prices", "prices", is_flag=True, help="Add last close, expected close and interval as prices.")
@click.option("--no-record", "no_record", is_flag=True, help="Leave the ledger of live predictions as it is.")
@format_options()
@common
def command(
    pipeline: str,
    overrides: tuple[str, ...],
    model: str | None,
    symbols: str | None,
    as_of: str | None,
    first: str | None,
    last: str | None,
    now: str | None,
    order: str | None,
    top: int | None,
    follow: bool,
    until: str | None,
    ingest: bool | None,
    delay: float | None,
    patience: float | None,
    prices: bool,
    no_record: bool,
    form: str,
    output: Path | None,
    workspace: Path,
    quiet: bool,
    verbose: bool,
) -> int:
    """Predict the next bar of every symbol from its newest finished bar.

    Expected return and interval in basis points; `target` says whether the model learned the raw return or the return
    relative to its universe; interval and p_up always speak of the raw return of the bar that opens at target_ts.
    Predictions for bars that are still to come go into the workspace's ledger, to be graded (klinepred grade); replays
    (--as-of, --start) do not. Exit code 3: some symbols could not be predicted, each named with its reason, or the
    ledger could not be written.

    --follow waits for each bar's close by the calendar, takes the bar in from the pipeline's source, predicts, and goes
    on until SIGINT (exit 130) or SIGTERM (143). --follow --now TS replays what is stored from TS on, without waiting.

    --start predicts every bar of a range, for a backtester of your own; of a walk-forward (dataset.split.folds) each by
    the model that had not seen it. The note marks bars that had a part in making their model.
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    run = read_pipeline(pipeline, overrides, space)
    wanted = parse_symbols(symbols)
    moment, clock = parse_ts(as_of, option="--as-of"), parse_ts(now, option="--now")
    span = _span(first, last, as_of, clock)
    end = parse_ts(until, option="--until")
    _refuse_unfit(
        follow,
        {"--start": first, "--end": last, "--as-of": as_of, "--sort": order, "--top": top},
        {"--until": until, "--ingest": ingest, "--delay": delay, "--patience": patience},
    )

    if span is not None:
        from klinepred.cli.ranged import range_to

        return range_to(
            output,
            form,
            space,
            run,
            model=model,
            symbols=wanted,
            span=span,
            now=clock,
            order=order,
            top=top,
            prices=prices,
        )

    from klinepred.model.shelf import choose_model

    folder = choose_model(space, pipeline=run.name, name=model)

    import polars as pl

    from klinepred.bars.store import store_version
    from klinepred.cli.ledger import keep_live
    from klinepred.model.bundle import load_bundle
    from klinepred.pipeline import predict_bars

    bundle = load_bundle(folder)
    if follow:
        from klinepred.cli.follow import follow_to

        return follow_to(
            output,
            form,
            bundle,
            space,
            run,
            symbols=wanted,
            start=clock,
            until=end,
            ingest=ingest,
            prices=prices,
            delay=delay,
            patience=patience,
            record=clock is None and not no_record,
        )
    version = store_version(space)
    answer = predict_bars(bundle, space, run, symbols=wanted, as_of=moment, now=clock)
    shown = answer.rows.hstack(answer.prices.select(PRICES)) if prices else answer.rows
    shown = chosen(shown, order=order, top=top)
    if form == "table":
        rows = short(shown).hstack(shown.select(pl.col(PRICES).round(4))) if prices else short(shown)
        write_rows(rows, form=form, output=output, title=f"model {bundle.name}", last=40)
    else:
        write_rows(shown, form=form, output=output)
    for symbol, reason in answer.failures.items():
        click.echo(f"no prediction: {symbol}: {reason}", err=True)
    live = moment is None and not no_record
    kept = not live or keep_live(answer.rows, bundle, space, version=version, now=clock)
    return 3 if answer.failures or not kept else 0


def chosen(rows: pl.DataFrame, *, order: str | None, top: int | None) -> pl.DataFrame:
    """Rows in the order asked for, the first `top` of them; with `top` alone the largest expected moves, up or down."""
    import polars as pl

    keys = {
        "expected": pl.col("expected_return_bps"),
        "size": pl.col("expected_return_bps").abs(),
        "p_up": pl.col("p_up"),
        "width": pl.col("hi80_bps") - pl.col("lo80_bps"),
    }
    order = order or ("size" if top else "symbol")
    if order != "symbol":
        rows = rows.sort(keys[order], descending=True, nulls_last=True, maintain_order=True)
    return rows.head(top) if top else rows


def short(rows: pl.DataFrame) -> pl.DataFrame:
    """The columns a person reads first; model and run stand in the title."""
    import polars as pl

    return rows.select(
        "symbol",
        "bar_ts",
        "target_ts",
        pl.col("expected_return_bps").round(2).alias("expected bps"),
        "target",
        pl.col("p_up").round(3).alias("P(up)"),
        pl.col("lo80_bps").round(1).alias("lo80 bps"),
        pl.col("hi80_bps").round(1).alias("hi80 bps"),
        "stale",
        pl.col("note").replace("", None),
    )


def _refuse_unfit(follow: bool, once: dict[str, object], on: dict[str, object]) -> None:
    """Options that mean nothing with --follow, or without it."""
    unfit = [name for name, value in (once if follow else on).items() if value is not None]
    if unfit:
        raise UsageError(
            f"{', '.join(unfit)} {'with' if follow else 'without'} --follow",
            expected="--follow, which predicts each bar as it closes"
            if not follow
            else "the newest bars, as they close",
            got="options that do not go with it" if follow else "a prediction made once",
            do="leave them out" + ("" if follow else ", or add --follow"),
        )


def _span(
    first: str | None, last: str | None, as_of: str | None, now: datetime | None
) -> tuple[datetime, datetime] | None:
    if first is None and last is None:
        return None
    if as_of is not None or first is None:
        raise UsageError(
            "--start/--end/--as-of",
            expected="either --start (with or without --end) or --as-of",
            got="--as-of beside a range" if as_of else "--end alone",
            do="leave one out, or add --start",
        )
    low = parse_ts(first, option="--start")
    high = parse_ts(last, option="--end") or now or datetime.now(UTC)
    if low is None or low >= high:
        raise UsageError("--start/--end", expected="a start before the end", got=f"{first} and {last}", do="swap them")
    return low, high
