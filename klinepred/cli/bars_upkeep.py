"""In: what to undo, delete or tidy in the store. Out: one commit that does it, said before and after."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from klinepred.cli.endings import format_options
from klinepred.cli.options import common, parse_as_of, parse_span, parse_symbols
from klinepred.cli.options import start as begin
from klinepred.cli.output import write_rows
from klinepred.errors import UsageError

log = logging.getLogger("klinepred.bars")

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
rehearse_option = click.option("--dry-run", "rehearse", is_flag=True, help="Only say what would be done.")


def confirm(what: str, *, option: str) -> None:
    """Ask on the terminal; where there is none, the option must have been given.

    Raises
    ------
    UsageError
        There is no terminal to ask on.
    click.Abort
        The answer is no.
    """
    if not sys.stdin.isatty():
        raise UsageError(
            what,
            expected="a word that this is meant",
            got="neither --yes nor a terminal to ask on",
            do=f"add {option}",
        )
    click.confirm(f"{what}. Go on?", abort=True, err=True)


@click.command("history", epilog="\b\nExample: klinepred bars history --format csv")
@common
@format_options()
def history_command(*, workspace: Path, quiet: bool, verbose: bool, form: str, output: Path | None) -> None:
    """The versions of the store: when, what, from where, how many bars; all of them can be read with --as-of."""
    from klinepred.bars.history import list_history, shorten

    space = begin(workspace, quiet=quiet, verbose=verbose)
    rows = list_history(space)
    write_rows(shorten(rows) if form == "table" else rows, form=form, output=output)
    log.info(
        f"store version {rows['version'][-1]}"
        if rows.height
        else f"nothing stored yet in {space.store}: run klinepred ingest"
    )


@click.command("delete", epilog="\b\nExample: klinepred bars delete --symbols AAPL --start 2025-06-10 --end 2025-06-11")
@common
@click.option("--symbols", metavar="A,B|@FILE", help="Of these symbols (required).")
@click.option("--start", metavar="TS", help="From this moment, UTC.")
@click.option("--end", metavar="TS", help="Before this moment, UTC.")
@yes_option
@rehearse_option
@format_options()
def delete_command(
    *,
    workspace: Path,
    quiet: bool,
    verbose: bool,
    symbols: str | None,
    start: str | None,
    end: str | None,
    yes: bool,
    rehearse: bool,
    form: str,
    output: Path | None,
) -> None:
    """Take bars out of the store, as a new version; `klinepred bars restore` brings them back."""
    from klinepred.bars.undo import delete_bars

    names = parse_symbols(symbols)
    if not names:
        raise UsageError(
            "bars delete", expected="the symbols to delete bars of", got="none", do="add --symbols A,B or @FILE"
        )
    low, high = parse_span(start, end)
    space = begin(workspace, quiet=quiet, verbose=verbose)
    found = delete_bars(space, names, start=low, end=high, rehearse=True)
    if not found.gone:
        log.info("no bar there to delete; store version %d", found.before)
    elif not rehearse:
        if not yes:
            confirm(f"delete {found.gone:,} bars of {', '.join(found.rows['symbol'])}", option="--yes")
        found = delete_bars(space, names, start=low, end=high, expect=found.gone)
        log.info(
            "%s bars deleted; store version %d; back with klinepred bars restore --as-of %d",
            f"{found.gone:,}",
            found.after,
            found.before,
        )
    else:
        log.info("would delete %s bars of store version %d", f"{found.gone:,}", found.before)
    write_rows(found.rows.select("symbol", "before", "after"), form=form, output=output)


@click.command("restore", epilog="\b\nExample: klinepred bars restore --as-of 3   (see klinepred bars history)")
@common
@click.option("--as-of", "as_of", metavar="VERSION|TS", required=True, help="The store to go back to.")
@rehearse_option
@format_options()
def restore_command(
    *, workspace: Path, quiet: bool, verbose: bool, as_of: str, rehearse: bool, form: str, output: Path | None
) -> None:
    """Make the bars what they were, as a new version: undoes a bad ingest, a delete or another restore.

    Calendar, hours and source of each symbol go back with its bars; the quarantine stays. No version is lost.
    """
    from klinepred.bars.store import list_symbols
    from klinepred.bars.undo import restore_bars

    space = begin(workspace, quiet=quiet, verbose=verbose)
    moment = parse_as_of(as_of)
    if moment is None:
        raise UsageError("--as-of", expected="a version or a moment", got="none", do="see klinepred bars history")
    before = list_symbols(space)
    found = restore_bars(space, moment, rehearse=rehearse)
    write_rows(found.rows, form=form, output=output)
    change = int((found.rows["after"] - found.rows["before"]).sum())
    fresh = int((found.rows["before"] == 0).sum()) - int((found.rows["after"] == 0).sum())
    bars, symbols = int(before["bars"].sum()), before.height
    log.info(
        "%s: %s bars of %d symbols %s %s bars of %d symbols; %s bars with other values; store version %d",
        "would restore" if rehearse else "restored" if found.after != found.before else "nothing to restore",
        f"{bars:,}",
        symbols,
        "would become" if rehearse else "before, now",
        f"{bars + change:,}",
        symbols + fresh,
        f"{int(found.rows['changed'].sum()):,}",
        found.after,
    )


@click.command("compact", epilog="\b\nExample: klinepred bars compact --all")
@common
@click.option("--all", "everything", is_flag=True, help="Every month of more than one file, not only of many.")
@format_options()
def compact_command(
    *, workspace: Path, quiet: bool, verbose: bool, everything: bool, form: str, output: Path | None
) -> None:
    """Rewrite months that lie in many files into few sorted ones; the bars stay the same. Ingest does it as needed."""
    import polars as pl

    from klinepred.bars.compaction import MOST_FILES, compact
    from klinepred.bars.store import store_version

    space = begin(workspace, quiet=quiet, verbose=verbose)
    done = compact(space, most=1 if everything else MOST_FILES)
    schema = {"month": pl.String, "before": pl.Int64, "after": pl.Int64, "bars": pl.Int64, "version": pl.Int64}
    rows = [(month.month, month.before, month.after, month.bars, month.version) for month in done]
    write_rows(pl.DataFrame(rows, schema=schema, orient="row"), form=form, output=output)
    version = store_version(space)
    where = "nothing stored yet" if version is None else f"store version {version}"
    log.info("%d month%s rewritten; %s", len(done), "s" * (len(done) != 1), where)


@click.command("vacuum", epilog="\b\nExample: klinepred bars vacuum --keep-days 90 --dry-run")
@common
@click.option(
    "--keep-days", type=click.FloatRange(min=0), default=30, show_default=True, help="Keep versions this young."
)
@yes_option
@rehearse_option
@format_options()
def vacuum_command(
    *, workspace: Path, quiet: bool, verbose: bool, keep_days: float, yes: bool, rehearse: bool, form: str,
    output: Path | None,
) -> None:  # fmt: skip
    """Free the disk of versions that nobody needs. Rows: the versions that stay readable, and why.

    The latest version stays, and all younger than --keep-days, and those that a model or an MLflow run was made from.
    The others can no longer be read or restored afterwards.
    """
    import polars as pl

    from klinepred.bars.store import store_version
    from klinepred.bars.vacuum import vacuum
    from klinepred.training.named import named_versions

    space = begin(workspace, quiet=quiet, verbose=verbose)
    named = named_versions(space)
    found = vacuum(space, named=named, keep_days=keep_days, rehearse=True)
    text = (
        f"{len(found.files):,} data files, {found.size / 1e6:,.1f} MB, {found.orphans} of them left by killed writers; "
        f"{len(found.lost)} versions no longer readable" + (f" ({_spans(found.lost)})" if found.lost else "")
    )
    if not rehearse and found.files:
        if not yes:
            confirm(f"remove {text}", option="--yes, or see with --dry-run what would go")
        found = vacuum(space, named=named, keep_days=keep_days)
    rows = pl.DataFrame([*found.kept.items()], schema={"version": pl.Int64, "kept_for": pl.String}, orient="row")
    write_rows(rows, form=form, output=output)
    version = store_version(space)
    log.info(
        "%s %s; %s",
        "would remove" if rehearse else "removed",
        text,
        "nothing stored yet" if version is None else f"store version {version}",
    )


def _spans(versions: tuple[int, ...]) -> str:
    """`0-3, 7` for 0, 1, 2, 3, 7."""
    out: list[list[int]] = []
    for version in versions:
        if out and version == out[-1][1] + 1:
            out[-1][1] = version
        else:
            out.append([version, version])
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in out)
