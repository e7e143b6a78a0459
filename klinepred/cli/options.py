"""In: nothing. Out: the options that several commands share, and the clock, pipeline and log they stand for."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from klinepred.config import load_pipeline
from klinepred.engine.engine import HERE, Engine
from klinepred.errors import UsageError
from klinepred.headway import Screen, watch
from klinepred.moment import SPAN, read_moment
from klinepred.paths import Workspace
from klinepred.settings import Pipeline

F = TypeVar("F", bound=Callable[..., Any])


def _pipelines(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: pipelines of the workspace and the shipped ones."""
    from klinepred.config import pipeline_names

    return [name for name in pipeline_names(_space(ctx)) if name.startswith(incomplete)]


def complete_models(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: folders of models of the workspace."""
    folder = _space(ctx).trained
    found = (path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else ()
    return sorted(name for name in found if name.startswith(incomplete or "") and not name.startswith("."))


def _space(ctx: click.Context) -> Workspace:
    return Workspace(ctx.params.get("workspace") or ".")


workspace_option = click.option(
    "-w",
    "--workspace",
    "workspace",
    type=click.Path(path_type=Path),
    default=".",
    help="Folder to work in (default: .).",
)
pipeline_option = click.option(
    "-p",
    "--pipeline",
    "pipeline",
    default="us-equities-5m",
    show_default=True,
    help="Name or path of a pipeline.",
    shell_complete=_pipelines,
)
set_option = click.option(
    "--set", "overrides", multiple=True, metavar="A.B=C", help="Override one setting of the pipeline; may be repeated."
)
now_option = click.option(
    "--now", "now", metavar="TS", help="Replay: pretend it is TS (ISO 8601, UTC unless it has an offset)."
)

symbols_option = click.option("--symbols", metavar="A,B|@FILE", help="Only these (default: all).")
as_of_option = click.option(
    "--as-of", "as_of", metavar="VERSION|TS", help="The store as it was: a version, or a moment in UTC."
)
allow_leaks_option = click.option(
    "--allow-leaks",
    "allow_leaks",
    is_flag=True,
    help="Train although the leak audit failed; run and model are marked for ever.",
)


def common(function: F) -> F:
    """-w, -q, -v: every command has them."""
    function = click.option("-v", "--verbose", is_flag=True, help="Say more on stderr.")(function)
    function = click.option("-q", "--quiet", is_flag=True, help="Only errors on stderr.")(function)
    return workspace_option(function)


def engine_options(function: F) -> F:
    """--engine, --num-workers."""
    function = click.option(
        "--num-workers",
        "workers",
        type=click.IntRange(1),
        help="Workers of --engine ray (default: all cores).",
    )(function)
    return click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="Who computes: this process, or a Ray cluster (that of RAY_ADDRESS, else one on this machine).",
    )(function)


@contextmanager
def opened_engine(name: str, workers: int | None) -> Iterator[Engine]:
    """The engine called `name`, for the length of a block."""
    if name == "local":
        if workers is not None:
            logging.getLogger("klinepred").warning("--num-workers is ignored without --engine ray")
        yield HERE
        return
    from klinepred.engine.on_ray import ray_cluster

    with ray_cluster(workers=workers) as engine:
        yield engine


def start(workspace: Path, *, quiet: bool, verbose: bool) -> Workspace:
    """Set up the log on stderr and open the workspace."""
    talk(quiet=quiet, verbose=verbose)
    return Workspace(workspace)


def talk(*, quiet: bool, verbose: bool) -> None:
    """Send the log of klinepred to stderr, one plain line a record; show work on a terminal; `quiet`: errors only."""
    log = logging.getLogger("klinepred")
    log.handlers.clear()
    handler = _Echo()
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.ERROR if quiet else logging.DEBUG if verbose else logging.INFO)
    log.propagate = False
    bars = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    watch(_board if bars and not quiet else None)


def _board() -> Screen:
    from klinepred.cli.board import Board

    return Board()


def say(text: str, *, nl: bool = True) -> None:
    """Put talk on stderr; nothing with -q, which asks for errors alone."""
    if logging.getLogger("klinepred").isEnabledFor(logging.INFO):
        click.echo(text, err=True, nl=nl)


class _Echo(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        mark = "warning: " if record.levelno == logging.WARNING else ""
        click.echo(mark + self.format(record), err=True)


def read_pipeline(name: str, overrides: tuple[str, ...], space: Workspace) -> Pipeline:
    """The pipeline with its overrides; settings without effect are warned of."""
    run = load_pipeline(name, overrides=overrides, workspace=space)
    for line in run.ignored():
        logging.getLogger("klinepred").warning(line)
    return run


def parse_ts(text: str | None, *, option: str) -> datetime | None:
    """ISO 8601 to an aware UTC datetime; a stamp without offset is UTC.

    Raises
    ------
    UsageError
        The text is no such stamp, or one of no market's time.
    """
    if text is None:
        return None
    try:
        return read_moment(text)
    except ValueError as error:
        raise UsageError(
            f"{option} {text}",
            expected=f"a date or an ISO 8601 stamp such as 2025-08-28T22:00:00Z, {SPAN}",
            got=repr(text),
            do=f"write {option} 2025-08-28T22:00:00Z",
        ) from error


def parse_span(start: str | None, end: str | None) -> tuple[datetime | None, datetime | None]:
    """--start and --end, each as `parse_ts`.

    Raises
    ------
    UsageError
        One is no stamp, or nothing can lie between them.
    """
    low, high = parse_ts(start, option="--start"), parse_ts(end, option="--end")
    if low is not None and high is not None and low >= high:
        raise UsageError("--start, --end", expected="a start before the end", got=f"{start} and {end}", do="swap them")
    return low, high


def parse_as_of(text: str | None) -> int | datetime | None:
    """A version of the store, or a moment as `parse_ts`.

    Raises
    ------
    UsageError
        The text is neither; eight digits that look like a date are asked about.
    """
    if text is None or not text.strip().isdigit() or len(text.strip()) > 9:
        return parse_ts(text, option="--as-of")
    if len(text.strip()) == 8 and text.strip().startswith(("19", "20")):
        raise UsageError(
            f"--as-of {text}", expected="a version or a moment", got="a number of 8 digits", do="write 2025-08-28"
        )
    return int(text)


def parse_symbols(text: str | None) -> tuple[str, ...]:
    """`A,B` or `@FILE` (one or more a line, `#` starts a comment) to symbols, letter for letter, without repeats.

    Raises
    ------
    UsageError
        The file does not exist or is no text, or no symbol is left.
    """
    if text is None:
        return ()
    body = text
    if text.startswith("@"):
        path = Path(text[1:])
        if not path.is_file():
            raise UsageError(
                f"--symbols {text}", expected="a text file of symbols", got="no such file", do="check the path after @"
            )
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise UsageError(
                f"--symbols {text}", expected="a text file in UTF-8", got=str(error), do="save it as UTF-8"
            ) from error
        body = ",".join(line.partition("#")[0] for line in lines)
    symbols = tuple(dict.fromkeys(part.strip() for part in body.replace("\n", ",").split(",") if part.strip()))
    if not symbols:
        raise UsageError(
            f"--symbols {text}", expected="at least one symbol", got="none", do="write --symbols AAPL,MSFT or @FILE"
        )
    return symbols
