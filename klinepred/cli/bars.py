"""In: the name of a view. Out: the stored bars: which symbols, how complete, the rows themselves."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from klinepred.cli.bars_check import check_command
from klinepred.cli.bars_export import command as export_command
from klinepred.cli.bars_upkeep import compact_command, delete_command, history_command, restore_command, vacuum_command
from klinepred.cli.endings import format_options
from klinepred.cli.group import Group
from klinepred.cli.options import as_of_option, common, parse_as_of, parse_span, parse_symbols, symbols_option
from klinepred.cli.options import start as begin
from klinepred.cli.output import write_rows


@click.group(cls=Group, epilog="\b\nExample: klinepred bars show --symbols AAPL --start 2025-06-10 --format csv")
def command() -> None:
    """List, check, show, export, delete and restore the stored bars."""


@command.command("list", epilog="\b\nExample: klinepred bars list")
@common
@as_of_option
@format_options()
def list_command(
    *, workspace: Path, quiet: bool, verbose: bool, as_of: str | None, form: str, output: Path | None
) -> None:
    """The symbols of the store: calendar, span, number of bars; `ended` is the last session of one that trades no more.

    A symbol counts as ended when others of its calendar have bars of five or more later sessions.
    """
    from klinepred.bars.spans import mark_ended, read_clocks
    from klinepred.bars.store import list_symbols, store_version

    space = begin(workspace, quiet=quiet, verbose=verbose)
    listed = list_symbols(space, as_of=parse_as_of(as_of))
    rows = listed.with_columns(mark_ended(read_clocks(listed))["ended"])
    write_rows(rows, form=form, output=output)
    version = store_version(space, as_of=parse_as_of(as_of))
    logging.getLogger("klinepred.bars").info(
        f"nothing stored yet in {space.store}: run klinepred ingest"
        if version is None
        else f"{rows.height} symbol{'s' * (rows.height != 1)}, {rows['bars'].sum():,} bars, store version {version}"
    )


@command.command(
    "show", epilog="\b\nExample: klinepred bars show --symbols AAPL --start 2025-06-10 --format csv -o aapl.csv"
)
@common
@symbols_option
@click.option("--start", metavar="TS", help="From this moment, UTC.")
@click.option("--end", metavar="TS", help="Before this moment, UTC.")
@as_of_option
@click.option("--last", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="Rows a table shows.")
@format_options()
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
    low, high = parse_span(start, end)
    version = store_version(space, as_of=parse_as_of(as_of))
    bars = scan_bars(
        space,
        symbols=parse_symbols(symbols) or None,
        start=low,
        end=high,
        as_of=version,
    )
    rows = bars.drop("calendar").collect()
    write_rows(rows, form=form, output=output, last=last)
    logging.getLogger("klinepred.bars").info(f"{rows.height:,} bars, store version {version}")


for below in (
    check_command,
    history_command,
    export_command,
    delete_command,
    restore_command,
    compact_command,
    vacuum_command,
):
    command.add_command(below)
