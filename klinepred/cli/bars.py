"""In: the name of a view. Out: the stored bars: which symbols, how complete, the rows themselves."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import click

from klinepred.cli.bars_export import command as export_command
from klinepred.cli.bars_upkeep import compact_command, delete_command, history_command, restore_command, vacuum_command
from klinepred.cli.options import common, now_option, parse_as_of, parse_symbols, parse_ts
from klinepred.cli.options import start as begin
from klinepred.cli.output import format_options, write_rows

symbols_option = click.option("--symbols", metavar="A,B|@FILE", help="Only these (default: all).")
as_of_option = click.option(
    "--as-of", "as_of", metavar="VERSION|TS", help="The store as it was: a version, or a moment in UTC."
)


@click.group(epilog="Example: klinepred bars show --symbols AAPL --start 2025-06-10 --format csv")
def command() -> None:
    """List, check, show, export, delete and restore the stored bars."""


@command.command("list", epilog="Example: klinepred bars list")
@common
@as_of_option
@format_options
def list_command(
    *, workspace: Path, quiet: bool, verbose: bool, as_of: str | None, form: str, output: Path | None
) -> None:
    """The symbols of the store: calendar, span, number of bars."""
    from klinepred.bars.store import list_symbols, store_version

    space = begin(workspace, quiet=quiet, verbose=verbose)
    rows = list_symbols(space, as_of=parse_as_of(as_of))
    write_rows(rows, form=form, output=output)
    version = store_version(space, as_of=parse_as_of(as_of))
    logging.getLogger("klinepred.bars").info(
        f"nothing stored yet in {space.data}: run klinepred ingest"
        if version is None
        else f"{rows.height} symbols, {rows['bars'].sum():,} bars, store version {version}"
    )


@command.command(
    "show", epilog="Example: klinepred bars show --symbols AAPL --start 2025-06-10 --format csv -o aapl.csv"
)
@common
@symbols_option
@click.option("--start", metavar="TS", help="From this moment, UTC.")
@click.option("--end", metavar="TS", help="Before this moment, UTC.")
@as_of_option
@click.option("--last", type=click.IntRange(min=1), default=20, show_default=True, help="Rows a table shows.")
@format_options
def show_command(
    *,
    workspace: Path,
    quiet: bool,
    verbose: bool,
    symbols: str | None,
    start: str | None,
    end: str | None,
    as_of: str | None,
    last: int,
    form: str,
    output: Path | None,
) -> None:
    """Stored bars, sorted by symbol and time. A table shows the last ones, other formats all."""
    from klinepred.bars.store import scan_bars, store_version

    space = begin(workspace, quiet=quiet, verbose=verbose)
    bars = scan_bars(
        space,
        symbols=parse_symbols(symbols) or None,
        start=parse_ts(start, option="--start"),
        end=parse_ts(end, option="--end"),
        as_of=parse_as_of(as_of),
    )
    rows = bars.drop("calendar").collect()
    write_rows(rows, form=form, output=output, last=last)
    logging.getLogger("klinepred.bars").info(
        f"{rows.height:,} bars, store version {store_version(space, as_of=parse_as_of(as_of))}"
    )


@command.command("check", epilog="Example: klinepred bars check --sessions --symbols AAPL")
@common
@symbols_option
@click.option("--sessions", is_flag=True, help="A row per session with missing or zero-volume bars, not per symbol.")
@now_option
@as_of_option
@format_options
def check_command(
    *,
    workspace: Path,
    quiet: bool,
    verbose: bool,
    symbols: str | None,
    sessions: bool,
    now: str | None,
    as_of: str | None,
    form: str,
    output: Path | None,
) -> None:
    """Expected against stored bars by the calendar; zero volume, jumps, bars since the last one."""
    import polars as pl

    from klinepred.bars.health import check_sessions, check_symbols
    from klinepred.bars.store import scan_bars

    space = begin(workspace, quiet=quiet, verbose=verbose)
    bars = scan_bars(space, symbols=parse_symbols(symbols) or None, as_of=parse_as_of(as_of))
    at = parse_ts(now, option="--now") or datetime.now(UTC)
    if sessions:
        rows = check_sessions(bars, now=at)
        odd = rows.filter((pl.col("missing") > 0) | (pl.col("zero_volume") > 0))
        write_rows(odd if form == "table" else rows, form=form, output=output)
        return
    rows = check_symbols(bars, now=at)
    write_rows(rows, form=form, output=output)
    total, gone = int(rows["expected"].sum()), int(rows["missing"].sum())
    logging.getLogger("klinepred.bars").info(
        "%s of %s expected bars are there; %s missing", f"{total - gone:,}", f"{total:,}", f"{gone:,}"
    )


for upkeep in (history_command, export_command, delete_command, restore_command, compact_command, vacuum_command):
    command.add_command(upkeep)
