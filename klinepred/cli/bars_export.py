"""In: symbols, a span, a version, a place. Out: their bars in a file, or in a folder with a file a symbol."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal, cast

import click

from klinepred.cli.options import common, parse_as_of, parse_span, parse_symbols
from klinepred.cli.options import start as begin
from klinepred.errors import UsageError

FORMS = ("csv", "parquet", "arrow")
SUFFIXES = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow"}


@click.command(
    "export", epilog="\b\nExample: klinepred bars export --symbols AAPL,MSFT --start 2025-01-01 -o two.parquet"
)
@common
@click.option("--symbols", metavar="A,B|@FILE", help="Only these (default: all).")
@click.option("--start", metavar="TS", help="From this moment, UTC.")
@click.option("--end", metavar="TS", help="Before this moment, UTC.")
@click.option("--as-of", "as_of", metavar="VERSION|TS", help="The store as it was: a version, or a moment in UTC.")
@click.option("--per-symbol", is_flag=True, help="A file per symbol in the folder -o, named safely on every system.")
@click.option("--format", "form", type=click.Choice(FORMS), help="Default: by the name of the file, else parquet.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The file or folder to write.")
def command(
    *,
    workspace: Path,
    quiet: bool,
    verbose: bool,
    symbols: str | None,
    start: str | None,
    end: str | None,
    as_of: str | None,
    per_symbol: bool,
    form: str | None,
    output: Path,
) -> None:
    """Write bars to files that `klinepred ingest` and other programs read. Memory stays bounded."""
    from klinepred.bars.export import export_bars

    chosen = form or ("parquet" if per_symbol else SUFFIXES.get(output.suffix.lower()))
    if chosen is None:
        raise UsageError(
            f"-o {output}",
            expected="a name that ends in .csv, .parquet, .arrow or .feather",
            got=repr(output.suffix),
            do="add --format csv|parquet|arrow, or another name",
        )
    low, high = parse_span(start, end)
    space = begin(workspace, quiet=quiet, verbose=verbose)
    done = export_bars(
        space,
        output,
        form=cast(Literal["csv", "parquet", "arrow"], chosen),
        symbols=parse_symbols(symbols) or None,
        start=low,
        end=high,
        as_of=parse_as_of(as_of),
        per_symbol=per_symbol,
    )
    log = logging.getLogger("klinepred.bars")
    log.info("wrote %s: %s bars in %d files; store version %d", output, f"{done.bars:,}", len(done.files), done.version)
    for clock, names in done.clocks.items():
        only = "" if len(done.clocks) == 1 else f" --symbols {','.join(names)}"
        hours = "" if clock.hours == "regular" else f" --hours {clock.hours}"
        log.info("to take it in elsewhere: klinepred ingest %s --calendar %s%s%s", output, clock.calendar, hours, only)
