"""In: a range of time, the models for it. Out: all its predictions, to stdout or into a file, slice by slice."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from klinepred.cli.output import open_rows, write_rows
from klinepred.headway import watch

if TYPE_CHECKING:
    import polars as pl

    from klinepred.paths import Workspace
    from klinepred.pipeline.ranges import Turn
    from klinepred.settings import Pipeline

log = logging.getLogger("klinepred")

STAMP: Final = "%Y-%m-%dT%H:%M:%SZ"


def range_to(
    output: Path | None,
    form: str,
    space: Workspace,
    run: Pipeline,
    *,
    model: str | None,
    symbols: tuple[str, ...],
    span: tuple[datetime, datetime],
    now: datetime | None,
    order: str | None,
    top: int | None,
    prices: bool,
) -> int:
    """`klinepred predict --start`; returns the exit code.

    CSV and Parquet are written as the slices come; a table, JSON, and rows in another order wait for the last one.
    """
    from klinepred.cli.predict import PRICES, chosen, short
    from klinepred.pipeline.ranges import predict_range
    from klinepred.prediction import NO_BAR, nothing

    turns = _turns(space, run, model)
    failures: dict[str, str] = {}
    predicted: set[str] = set()

    def slices() -> Iterator[pl.DataFrame]:
        for part in predict_range(turns, space, run, symbols=symbols, span=span, now=now):
            for symbol, why in part.failures.items():
                if why != NO_BAR or symbol not in failures:  # of several slices the one that says most
                    failures[symbol] = why
            predicted.update(part.rows.get_column("symbol").unique())
            if part.rows.height:
                yield part.rows.hstack(part.prices.select(PRICES)) if prices else part.rows
        if not predicted:
            raise nothing(failures or {"all symbols": f"no finished bar from {span[0]:{STAMP}} to {span[1]:{STAMP}}"})
        for symbol in predicted:
            failures.pop(symbol, None)

    whole = form in ("table", "json") or order is not None or top is not None
    if not whole:
        if output is None and sys.stdout.isatty():
            watch(None)  # the rows themselves show how far it is
        with open_rows(form, output) as put:
            for rows in slices():
                put(rows)
    else:
        import polars as pl

        shown = pl.concat(list(slices()))
        shown = shown.sort("symbol", "bar_ts") if order in (None, "symbol") and top is None else shown
        shown = chosen(shown, order=order, top=top)
        if form == "table":
            plain = short(shown).hstack(shown.select(pl.col(PRICES).round(4))) if prices else short(shown)
            names = ", ".join(dict.fromkeys(turn.bundle.name for turn in turns))
            write_rows(plain, form=form, output=output, title=f"model {names}", last=40)
        else:
            write_rows(shown, form=form, output=output)
    for symbol, reason in sorted(failures.items()):
        click.echo(f"no prediction: {symbol}: {reason}", err=True)
    return 3 if failures else 0


def _turns(space: Workspace, run: Pipeline, model: str | None) -> tuple[Turn, ...]:
    """One model as it is named; a walk-forward where its name is given, or where the default model is one of its."""
    from klinepred.model.bundle import load_bundle
    from klinepred.model.shelf import choose_model
    from klinepred.pipeline.folds import list_records
    from klinepred.pipeline.ranges import Turn, turns_of

    records = [record for record in list_records(space) if record.models]
    named = [record for record in records if record.name == model]
    if not named:
        folder = choose_model(space, pipeline=run.name, name=model)
        if model is None:
            named = [record for record in records if folder.name in {fold.model for fold in record.models}]
        if not named:
            return (Turn(load_bundle(folder)),)
    record = named[-1]
    log.info("walk-forward %s: each bar by the one of %d models that had not seen it", record.name, len(record.models))
    if not record.finished:
        log.warning("walk-forward %s has %d of its %d models", record.name, len(record.models), record.folds)
    return turns_of(record, space)
