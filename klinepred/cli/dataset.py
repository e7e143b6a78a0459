"""In: a pipeline and the store. Out: what it would learn from: parts, sequences, what is left out and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from klinepred.cli.endings import format_options
from klinepred.cli.group import Group
from klinepred.cli.options import common, pipeline_option, read_pipeline, set_option, start
from klinepred.cli.output import table, write_json, write_rows, write_text

if TYPE_CHECKING:
    import polars as pl


@click.group(cls=Group, epilog="\b\nExample: klinepred dataset describe --set dataset.split.folds=4")
def command() -> None:
    """What a pipeline would learn from."""


@command.command("describe", epilog="\b\nExample: klinepred dataset describe -p demo --format json")
@pipeline_option
@set_option
@format_options()
@common
def describe_command(
    pipeline: str,
    overrides: tuple[str, ...],
    form: str,
    output: Path | None,
    workspace: Path,
    quiet: bool,
    verbose: bool,
) -> int:
    """Rows, labels by kind of step, sequences and dates of each part, what is left out and why, and the memory needed.

    With dataset.split.folds above 1: of each fold of the walk-forward. Nothing is trained, and of the test part nothing
    but counts is shown. JSON is one object with `parts` and `memory_bytes`; CSV and Parquet hold the parts.
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    run = read_pipeline(pipeline, overrides, space)

    from klinepred.pipeline import describe_dataset

    parts, memory = describe_dataset(run, space)
    settings = run.dataset.model_dump(mode="json")
    if form == "json":
        write_json(
            {"pipeline": run.name, "dataset": settings, "memory_bytes": memory, "parts": parts.to_dicts()},
            output=output,
        )
    elif form == "table":
        write_text(_text(parts, memory, about=_about(settings), plain=output is not None), output=output)
    else:
        write_rows(parts, form=form, output=output)
    return 0


def _about(dataset: dict[str, object]) -> str:
    cut = (
        f"windows of {dataset['window']} bars, one label each"
        if dataset["cut"] == "window"
        else f"whole sessions led in by up to {dataset['burn_in']} bars"
    )
    return f"{dataset['target']} target {dataset['horizon']} bar(s) ahead, steps {dataset['steps']}; {cut}"


def _text(parts: pl.DataFrame, memory: dict[str, int], *, about: str, plain: bool) -> str:
    from klinepred.dataset.describe import WHY
    from klinepred.training.budget import size

    keys = ["fold", "part"] if parts["fold"].n_unique() > 1 else ["part"]
    main = parts.select(
        *keys, *("first", "last", "sessions", "symbols", "rows", "labelled", "within", "break", "sequences", "steps")
    )
    out = [about + "\n\n", table(main, plain=plain)]
    reasons = [why for why in WHY if parts[why].sum()]
    if reasons:
        out += ["\nwithout a label to learn or grade by:\n", table(parts.select(*keys, *reasons), plain=plain), "\n"]
        out += [f"{why}: {WHY[why]}\n" for why in reasons]
    total = sum(memory.values())
    out.append(
        f"\nexpected memory {size(total)}: features {size(memory['matrix'])}, beside them {size(memory['rows'])},"
        f" weights and optimiser {size(memory['weights'])}, a batch about {size(memory['batch'])}\n"
    )
    return "".join(out)
