"""In: what to look for in the stored bars. Out: a table per symbol, listings of what is odd, a picture as HTML."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from klinepred.cli.endings import format_options
from klinepred.cli.options import as_of_option, common, now_option, parse_as_of, parse_symbols, parse_ts, symbols_option
from klinepred.cli.options import start as begin
from klinepred.cli.output import write_rows, write_text
from klinepred.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from klinepred.bars.health import Health

LISTINGS: Final = ("sessions", "gaps", "jumps", "quarantine", "rescalings")


@click.command("check", epilog="\b\nExample: klinepred bars check --html health.html")
@common
@symbols_option
@click.option("--sessions", is_flag=True, help="A row per session with missing or zero-volume bars, not per symbol.")
@click.option("--gaps", is_flag=True, help="A row per run of missing bars: from, to, how many.")
@click.option("--jumps", is_flag=True, help="A row per jump between closes and per spike, with a guess at its cause.")
@click.option("--quarantine", is_flag=True, help="A row per symbol and reason of rows that were set aside.")
@click.option("--rescalings", is_flag=True, help="A row per time the stored bars of a symbol followed a split or unit.")
@click.option("--html", "page", type=click.Path(path_type=Path, dir_okay=False), help="Draw the picture into FILE.")
@now_option
@as_of_option
@format_options(also=(".html", ".htm"))
def check_command(
    *,
    workspace: Path,
    quiet: bool,
    verbose: bool,
    symbols: str | None,
    sessions: bool,
    gaps: bool,
    jumps: bool,
    quarantine: bool,
    rescalings: bool,
    page: Path | None,
    now: str | None,
    as_of: str | None,
    form: str,
    output: Path | None,
) -> None:
    """How complete, fresh and plausible the stored bars are, by the calendar of each symbol.

    A table leaves out columns in which nothing was found; csv, json and parquet have all. `-o FILE.html` is the
    picture: a heat map of missing bars over symbols and sessions, by the time of day, and the worst of each listing.
    """
    listing = _only(dict(zip(LISTINGS, (sessions, gaps, jumps, quarantine, rescalings), strict=True)))
    space = begin(workspace, quiet=quiet, verbose=verbose)
    at = parse_ts(now, option="--now") or datetime.now(UTC)

    from klinepred.bars.health import check_store

    health = check_store(space, now=at, symbols=parse_symbols(symbols) or None, as_of=parse_as_of(as_of))
    drawn = form == "table" and output is not None and output.suffix.lower() in (".html", ".htm")
    for file in dict.fromkeys(file for file in (page, output if drawn else None) if file is not None):
        from klinepred.bars.health_page import render_health

        write_text(render_health(health), output=file)
    if not drawn:
        write_rows(_rows(health, listing, people=form == "table"), form=form, output=output)
    _talk(health)


def _only(asked: dict[str, bool]) -> str | None:
    """The one listing that was asked for, None = the summary."""
    names = [name for name, wanted in asked.items() if wanted]
    if len(names) > 1:
        raise UsageError(
            " ".join(f"--{name}" for name in names),
            expected="at most one listing at a time",
            got=f"{len(names)}",
            do=f"call klinepred bars check once with --{names[0]}, once with --{names[1]}",
        )
    return names[0] if names else None


def _rows(health: Health, listing: str | None, *, people: bool) -> pl.DataFrame:
    import polars as pl

    from klinepred.bars.summary import telling

    if listing is None:
        return telling(health.symbols) if people else health.symbols
    if listing == "sessions" and people:
        return health.sessions.filter((pl.col("missing") > 0) | (pl.col("zero_volume") > 0))
    frame: pl.DataFrame = getattr(health, listing)
    return frame


def _talk(health: Health) -> None:
    """The sum, and what a reader must know before trusting the numbers."""
    log = logging.getLogger("klinepred.bars")
    table = health.symbols
    total, gone = int(table["expected"].sum()), int(table["missing"].sum())
    there = f"{total - gone:,} of {total:,}"
    log.info("%s expected bars are there; %s missing; store version %s", there, f"{gone:,}", health.version)
    for line in health.remarks():
        log.warning("%s", line)
