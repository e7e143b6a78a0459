"""In: paths, or a pipeline's source. Out: bars in the store; the report as a table or JSON."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from klinepred.cli.endings import format_options
from klinepred.cli.ledger import grade_ledger
from klinepred.cli.options import (
    common,
    engine_options,
    now_option,
    opened_engine,
    parse_symbols,
    parse_ts,
    pipeline_option,
    read_pipeline,
    set_option,
)
from klinepred.cli.options import start as begin
from klinepred.cli.output import shown, table, write_json, write_text
from klinepred.errors import UsageError
from klinepred.moment import read_moment

if TYPE_CHECKING:
    from klinepred.bars.dry_run import Reading
    from klinepred.bars.report import IngestReport
    from klinepred.settings import DataSettings

log = logging.getLogger("klinepred.bars")

EXAMPLES = """Examples:

\b
  klinepred ingest                                    Yahoo, the symbols of the default pipeline
  klinepred ingest bars.parquet --calendar XNYS       a file; also CSV, folders, patterns
  klinepred ingest SPY.csv --tz America/New_York      stamps without a zone
  klinepred ingest bars.zip --dry-run                 how the files would be read; nothing is stored
  klinepred ingest --exchange binance --symbols BTC/USDT,ETH/USDT --start 2024-01-01
  klinepred ingest --source simulate -p demo          the simulated market"""


@click.command(epilog=EXAMPLES)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@common
@pipeline_option
@set_option
@now_option
@click.option("--source", type=click.Choice(["yahoo", "files", "exchange", "simulate"]), help="Where bars come from.")
@click.option("--exchange", metavar="NAME", help="An exchange by its name in ccxt, such as binance.")
@click.option("--symbols", metavar="A,B|@FILE", help="Only these; names the symbol of a file without one.")
@click.option("--start", metavar="DATE", help="First day, in the calendar's zone.")
@click.option("--end", metavar="DATE", help="Last day, included.")
@click.option("--tz", metavar="ZONE", help="Zone of stamps without one (default: the vendor's, else the calendar's).")
@click.option(
    "--stamp",
    type=click.Choice(["open", "close"]),
    help="Stamps are bar opens or ends (default: the vendor's, else opens).",
)
@click.option("--vendor", metavar="auto|NAME", help="Whose conventions the files follow (default: recognised).")
@click.option("--calendar", metavar="NAME", help="Sessions, such as XNYS, XLON, 24/7 (default: the pipeline's).")
@click.option("--hours", type=click.Choice(["regular", "extended"]), help="Trading hours.")
@click.option(
    "--rescale/--no-rescale",
    default=None,
    help="Multiply stored bars by a constant ratio to received ones (default: where the source tells of the split).",
)
@click.option("--dry-run", is_flag=True, help="Show how files are read, and store nothing.")
@engine_options
@format_options("table", "json")
def command(
    *,
    paths: tuple[str, ...],
    workspace: Path,
    quiet: bool,
    verbose: bool,
    pipeline: str,
    overrides: tuple[str, ...],
    now: str | None,
    source: str | None,
    exchange: str | None,
    symbols: str | None,
    start: str | None,
    end: str | None,
    tz: str | None,
    stamp: str | None,
    vendor: str | None,
    calendar: str | None,
    hours: str | None,
    rescale: bool | None,
    dry_run: bool,
    engine: str,
    workers: int | None,
    form: Literal["table", "json"],
    output: Path | None,
) -> int:
    """Take bars in from Yahoo, files, an exchange or the simulated market.

    PATH is a file (CSV, TSV, Parquet, Arrow/Feather), a folder or a pattern. Bars land checked, sorted and unique in
    the store of the workspace; what cannot be a bar is set aside with a reason; nothing is filled, nothing lost.
    With --engine ray many files are read and cleaned at once; what is stored is the same, commit by commit.
    Exit codes: 0 done, 3 some symbols failed, 1 all failed, 2 usage.
    """
    from klinepred.bars.ingest import ingest

    space = begin(workspace, quiet=quiet, verbose=verbose)
    chosen = "files" if paths else source or ("exchange" if exchange else None)
    run = read_pipeline(pipeline, (*overrides, *([f'data.source="{chosen}"'] if chosen else [])), space)
    if paths and source not in (None, "files"):
        raise UsageError(
            f"--source {source}", expected="no PATH with it", got=f"{len(paths)} paths", do="leave one of them away"
        )
    changes: dict[str, Any] = {
        "paths": paths or None,
        "symbols": parse_symbols(symbols) or (() if paths else None),
        "start": _day(start, "--start"),
        "end": _day(end, "--end"),
        "tz": tz,
        "stamp": stamp,
        "vendor": vendor,
        "exchange": exchange,
        "calendar": calendar,
        "hours": hours,
        "rescale": None if rescale is None else "always" if rescale else "never",
    }
    first, last = changes["start"] or run.data.start, changes["end"] or run.data.end
    if first and last and first > last:
        raise UsageError("--start, --end", expected="a start before the end", got=f"{first} and {last}", do="swap them")
    data = run.data.model_copy(update={name: value for name, value in changes.items() if value is not None})
    if data.source == "simulate":
        span = {name: day for name, day in (("start", changes["start"]), ("end", changes["end"])) if day is not None}
        data = data.model_copy(update={"simulate": data.simulate.model_copy(update=span)})
    if data.source == "exchange" and data.calendar != "24/7" and calendar is None:
        log.info("exchanges of coins never close: calendar 24/7, not the pipeline's %s", data.calendar)
        data = data.model_copy(update={"calendar": "24/7", "hours": hours or "regular"})
    if exchange is not None and data.source != "exchange":
        log.warning("--exchange is not used: the source is %s", data.source)
    for option, value in (("--tz", tz), ("--stamp", stamp), ("--vendor", vendor)):
        if value is not None and data.source != "files":
            log.warning("%s is not used: the source is %s", option, data.source)
    if symbols is not None and data.source == "simulate":
        log.warning("--symbols is not used: --set data.simulate.symbols=N says how many there are")
    if dry_run:
        if engine != "local":
            log.warning("--engine %s is not used: a dry run reads here", engine)
        return _dry_run(data, now, form=form, output=output)
    at = parse_ts(now, option="--now")
    with opened_engine(engine, workers) as who:
        report = ingest(data, space, now=at, engine=who)
    if form == "json":
        write_json(report.to_dict(), output=output)
    else:
        _write_table(report, output)
    grade_ledger(space, now=at)
    return report.exit_code


def _write_table(report: IngestReport, output: Path | None) -> None:
    from klinepred.bars.report import FAILED

    text = table(report.to_frame(), plain=output is not None) + report.summary() + "\n"
    reasons: dict[str, int] = {}
    for row in report.symbols:
        for reason, count in row.reasons().items():
            reasons[reason] = reasons.get(reason, 0) + count
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
        text += f"quarantined {count:,}: {reason}\n"
    write_text(text, output=output)
    for row in report.symbols:
        if row.message:
            failed = row.status in FAILED
            log.log(
                logging.ERROR if failed else logging.INFO, f"{'error: ' if failed else ''}{row.symbol}: {row.message}"
            )


def _dry_run(data: DataSettings, now: str | None, *, form: str, output: Path | None) -> int:
    from klinepred.bars.dry_run import dry_run

    told = dry_run(data, now=parse_ts(now, option="--now"))
    if form == "json":
        write_json(told.to_dict(), output=output)
    else:
        text = "\n".join(_reading(file, plain=output is not None) for file in told.files)
        write_text(f"{text}\nnothing was stored (--dry-run)\n", output=output)
    return told.exit_code


def _reading(file: Reading, *, plain: bool) -> str:
    """One file of a dry run as lines for people."""
    how, counts = file.how, file.counts
    lines: list[tuple[str, str]] = []
    if how is not None:
        spacings: dict[str, list[str]] = {}
        for symbol, spacing in how.spacing.items():
            spacings.setdefault(spacing, []).append(symbol)
        many = len(spacings) > 1
        lines += [
            ("form", how.form),
            ("vendor", how.vendor or "none recognised"),
            ("columns", ", ".join(f"{part} = {column!r}" for part, column in how.columns.items())),
            ("zone", how.zone),
            ("stamps", "bar opens" if how.stamp == "open" else "bar ends"),
            ("spacing", "; ".join(name + (f" ({_few(of)})" if many else "") for name, of in spacings.items()) or "-"),
            ("symbols", _few(file.symbols)),
            ("rows", f"{how.rows:,}"),
        ]
    span = f", {file.first_ts:%Y-%m-%d %H:%MZ} to {file.last_ts:%Y-%m-%d %H:%MZ}" if file.first_ts else ""
    lines.append(("bars", f"{counts['bars']:,}{span}"))
    lines += [
        (name.replace("_", " "), f"{counts[name]:,}") for name in ("held_back", "duplicates", "empty") if counts[name]
    ]
    lines += [("quarantine", f"{count:,}: {reason}") for reason, count in file.quarantined.items()]
    lines += [("remark", line) for line in file.remarks]
    lines += [("error", f"{name}: {failure.message}") for name, failure in file.failures.items()]
    text = "".join(f"  {label:<12}{shown(value)}\n" for label, value in lines)
    return f"{shown(file.name)}\n{text}" + (table(file.first, plain=plain) if file.first.height else "")


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8:,} more" if len(names) > 8 else "") or "-"


def _day(text: str | None, option: str) -> date | None:
    if text is None:
        return None
    try:
        read_moment(text)
        return datetime.fromisoformat(text.strip()).date()
    except ValueError as error:
        raise UsageError(
            f"{option} {text}", expected="a day such as 2025-08-28", got=repr(text), do=f"write {option} 2025-08-28"
        ) from error
