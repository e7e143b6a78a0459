"""In: new predictions, again and again. Out: the same at the end of stdout or of a file, rows whole or not at all."""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from klinepred.cli.output import csv_text, plain, table
from klinepred.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from klinepred.model.bundle import ModelBundle
    from klinepred.paths import Workspace
    from klinepred.settings import Pipeline

log = logging.getLogger("klinepred")

STAMP: Final = "%Y-%m-%dT%H:%M:%SZ"


def follow_to(
    output: Path | None,
    form: str,
    bundle: ModelBundle,
    space: Workspace,
    run: Pipeline,
    *,
    symbols: tuple[str, ...],
    start: datetime | None,
    until: datetime | None,
    ingest: bool | None,
    prices: bool,
    delay: float | None,
    patience: float | None,
    record: bool,
) -> int:
    """`klinepred predict --follow`; returns the exit code: 130 or 143 after a signal, 0 at the end asked for."""
    from klinepred.cli.ledger import keep_live
    from klinepred.cli.predict import PRICES, short
    from klinepred.live.stop import Stopped, Stops
    from klinepred.pipeline.live import DELAY, PATIENCE, Following, follow_bars
    from klinepred.schema import PREDICTION_SCHEMA

    refuse_unfit(form, output)
    levels = [*PRICES] if prices else []
    shown = open_end(output, form=form, columns=[*PREDICTION_SCHEMA, *levels], model=bundle.name)
    how = Following(
        start=start,
        until=until,
        ingest=ingest,
        delay=DELAY if delay is None else timedelta(seconds=delay),
        patience=PATIENCE if patience is None else timedelta(seconds=patience),
    )
    put_out = sink_to(output, form=form, short=short, prices=levels)

    def keep(rows: pl.DataFrame, version: int) -> None:
        if record:
            keep_live(rows, bundle, space, version=version, now=None)

    def sink(rows: pl.DataFrame, levels: pl.DataFrame, version: int) -> None:
        if output is None:
            put_out(rows, levels)
            keep(rows, version)
            return
        keep(rows, version)  # first: a row in the file counts as done once this is started again
        put_out(rows, levels)

    try:
        with Stops() as stops:
            follow_bars(bundle, space, run, how=how, sink=sink, stops=stops, symbols=symbols, shown=shown)
    except Stopped as stop:
        click.echo(f"stopped by {stop.signal.name}: the store and what was put out are whole", err=True)
        return stop.exit_code
    return 0


def refuse_unfit(form: str, output: Path | None) -> None:
    """Make sure that rows can be added to what comes out, one after another.

    Raises
    ------
    UsageError
        They cannot.
    """
    if form == "parquet" or (form == "table" and output is not None):
        raise UsageError(
            f"--follow {'-o ' + str(output) if output else '--format ' + form}",
            expected="rows that can be added one after another: csv, or json (one object a line)",
            got="parquet, which is written at once" if form == "parquet" else "a table",
            do="add --format csv or --format json",
        )


def open_end(output: Path | None, *, form: str, columns: list[str], model: str) -> dict[str, datetime]:
    """Make ready to add rows to `output`; the newest bar of each symbol that is in it from this model.

    A last line that was cut off, as by a power failure, is taken away with a word.

    Raises
    ------
    UsageError
        The file holds something else, or cannot be written.
    """
    if output is None:
        return {}
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        if not output.exists() or output.stat().st_size == 0:
            _append(b"", output)
            return {}
        whole = output.read_bytes()
    except OSError as error:
        raise _unwritable(output, error) from error
    kept = whole[: whole.rfind(b"\n") + 1]
    found = _newest_in(kept or whole, form=form, columns=columns, model=model, cut=not kept)
    if isinstance(found, str):  # another's file stays as it is, to its last letter
        raise UsageError(
            f"-o {output}",
            expected=f"a new file, or one with the columns {', '.join(columns[:4])} … of the same format",
            got=found,
            do="name another file",
        )
    if len(kept) < len(whole):
        try:
            os.truncate(output, len(kept))
        except OSError as error:
            raise _unwritable(output, error) from error
        log.warning("%s ended within a line: the last %d bytes are removed", output, len(whole) - len(kept))
    return found


def _newest_in(text: bytes, *, form: str, columns: list[str], model: str, cut: bool) -> dict[str, datetime] | str:
    """The newest bar of each symbol from `model` in rows that follow wrote; in words what they are, if others did.

    Parameters
    ----------
    cut
        Whether `text` is the beginning of a first line, and no more.
    """
    import polars as pl

    from klinepred.spreadsheet import unguarded

    if cut:
        head = (",".join(columns) if form == "csv" else f'{{"{columns[0]}": ').encode()
        return {} if text.startswith(head) or head.startswith(text) else "another content, without an end of a line"
    try:
        if form == "csv":
            rows = pl.read_csv(text, infer_schema=False)
            rows = rows.with_columns(unguarded(column) for column in rows.get_columns())
        else:
            rows = pl.read_ndjson(text, infer_schema_length=None)
    except pl.exceptions.PolarsError:
        return f"text that is no {form.upper()}" + (", one object a line" if form == "json" else "")
    if rows.columns != columns:
        return ", ".join(rows.columns[:4]) or "another content"
    try:
        mine = rows.filter(pl.col("model") == model)
        stamps = mine.select("symbol", pl.col("bar_ts").str.to_datetime(STAMP, time_zone="UTC"))
    except pl.exceptions.PolarsError:
        return "a bar_ts or a model of another form, as other programs write them"
    return dict(stamps.group_by("symbol").agg(pl.col("bar_ts").max()).drop_nulls().iter_rows())


def sink_to(
    output: Path | None, *, form: str, short: Callable[[pl.DataFrame], pl.DataFrame], prices: list[str]
) -> Callable[[pl.DataFrame, pl.DataFrame], None]:
    """Adds rows to stdout or to `output`, flushed, with one write.

    Parameters
    ----------
    short
        What a table shows of rows.
    prices
        Columns of prices that are added.
    """
    headed = output is not None and output.exists() and output.stat().st_size > 0

    def sink(rows: pl.DataFrame, levels: pl.DataFrame) -> None:
        nonlocal headed
        closed: datetime = rows["asof"].max()  # type: ignore[assignment]
        shown = rows.hstack(levels.select(prices)) if prices else rows
        if form == "table":
            import polars as pl

            view = short(shown)
            view = view.hstack(shown.select(pl.col(prices).round(4))) if prices else view
            text = table(view, title=f"bars closed by {closed:%Y-%m-%d %H:%MZ}") + "\n"
        elif form == "csv":
            text = csv_text(shown, header=not headed)
        else:
            text = "".join(
                json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
                for row in plain(shown).iter_rows(named=True)
            )
        headed = True
        _add(text.encode(errors="backslashreplace"), output)
        if output is not None:
            log.info("%s: %d rows into %s", f"{closed:%Y-%m-%d %H:%MZ}", rows.height, output)

    return sink


def _add(payload: bytes, output: Path | None) -> None:
    if output is None:
        sys.stdout.buffer.write(payload)
        sys.stdout.buffer.flush()
        return
    try:
        _append(payload, output)
    except OSError as error:
        raise _unwritable(output, error) from error


def _unwritable(output: Path, error: OSError) -> UsageError:
    return UsageError(
        f"-o {output}",
        expected="a file that can be written",
        got=error.strerror or str(error),
        do="free the disk or name another file" if error.errno == errno.ENOSPC else "name another file",
    )


def _append(payload: bytes, output: Path) -> None:
    with output.open("ab", buffering=0) as file:
        size = output.stat().st_size
        if file.write(payload) != len(payload):  # no room for all of it
            os.truncate(output, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
