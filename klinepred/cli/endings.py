"""In: --format and -o as they were typed. Out: the form of what comes out: as named, else by the ending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from klinepred.errors import UsageError

FORMATS: Final = ("table", "csv", "json", "parquet")
ENDINGS: Final = {".csv": "csv", ".json": "json", ".parquet": "parquet", ".pq": "parquet", ".txt": "table"}
LINES: Final = {".jsonl": "json", ".ndjson": "json"}
"""Endings of files with one object a line, which `predict --follow` writes."""

Decorator = Callable[[Any], Any]


def format_options(*forms: str, also: Sequence[str] = ()) -> Decorator:
    """--format and -o; the command gets `form` and `output`.

    Parameters
    ----------
    forms
        Of `FORMATS`, the first one where nothing is said; without any: all.
    also
        More endings, which leave `form` as it is where nothing is said.
    """
    chosen = forms or FORMATS

    def resolve(ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
        output = ctx.params.get("output")
        if value is not None or output is None or output.suffix.lower() in also:
            return value or chosen[0]
        return form_of(output, forms=chosen, lines=bool(ctx.params.get("follow")))

    def decorate(function: Any) -> Any:
        named = click.option(
            "--format",
            "form",
            type=click.Choice(chosen),
            callback=resolve,
            help=f"How it comes out (default: by the ending of -o FILE, else {chosen[0]}).",
        )
        return named(_output("Write to FILE instead of stdout.")(function))

    return decorate


def report_options(function: Any) -> Any:
    """--format table|json, and -o FILE for JSON beside what stdout shows; the command gets `form` and `output`."""

    def resolve(ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
        output = ctx.params.get("output")
        if output is not None and value != "json":
            form_of(output, forms=("json",))
        return value or "table"

    named = click.option(
        "--format", "form", type=click.Choice(["table", "json"]), callback=resolve, help="How stdout shows it (table)."
    )
    return named(_output("Write JSON to FILE.")(function))


def form_of(output: Path, *, forms: Sequence[str] = FORMATS, lines: bool = False) -> str:
    """The form that the ending of a file asks for.

    Parameters
    ----------
    lines
        Whether JSON may come one object a line.

    Raises
    ------
    UsageError
        The ending is none of `forms`.
    """
    known = {**ENDINGS, **(LINES if lines else {})}
    found = known.get(output.suffix.lower())
    if found is not None and found in forms:
        return found
    fit = [ending for ending, form in known.items() if form in forms]
    raise UsageError(
        f"-o {output}",
        expected=f"a name that ends in {', '.join(fit[:-1])} or {fit[-1]}"
        if fit[1:]
        else f"a name that ends in {fit[0]}",
        got=repr(output.suffix) if output.suffix else "a name without an ending",
        do=f"name it so, or add --format {'|'.join(forms)}",
    )


def _output(text: str) -> Decorator:
    # eager: --format looks at it
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option("-o", "--output", "output", type=kind, is_eager=True, help=text)
