"""In: two trained models and the store. Out: whether they differ beyond noise on the bars both were tested on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from klinepred.cli.endings import report_options
from klinepred.cli.options import common, complete_models, pipeline_option, read_pipeline, set_option, start
from klinepred.cli.output import table, write_json

if TYPE_CHECKING:
    from klinepred.evaluation.comparison import Comparison


@click.command(
    epilog="\b\nExample: klinepred compare demo-20261130T101500Z-1f2e3d4c demo-20261130T113000Z-5a6b7c8d",
    short_help="Whether two models differ beyond noise.",
)
@click.argument("model_a", shell_complete=complete_models)
@click.argument("model_b", shell_complete=complete_models)
@pipeline_option
@set_option
@report_options
@common
def command(
    model_a: str,
    model_b: str,
    pipeline: str,
    overrides: tuple[str, ...],
    form: str,
    output: Path | None,
    workspace: Path,
    quiet: bool,
    verbose: bool,
) -> int:
    """Compare MODEL_A with MODEL_B: names or run ids from `klinepred models list`, or folders.

    Both are graded on the bars that the test parts of both hold, on the same bootstrap draws of whole sessions. The
    answer is A, B, NO DIFFERENCE or NOT ENOUGH DATA. Bootstrap and seed are the pipeline's [evaluate].
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    run = read_pipeline(pipeline, overrides, space)

    from klinepred.model.shelf import find_model
    from klinepred.pipeline import compare_models

    folders = find_model(space, model_a), find_model(space, model_b)
    found = compare_models(folders, space, settings=run.evaluate)
    if form == "json" or output is not None:
        write_json(found.to_dict(), output=output)
    if form == "table":
        click.echo(_text(found, folders), nl=False)
    return 0


def _text(found: Comparison, folders: tuple[Path, Path]) -> str:
    import polars as pl

    rows = [
        {
            "": letter,
            "model": folder.name,
            "IC": round(one.head.ic, 4),
            "± se": round(one.head.ic_se, 4),
            "rank IC": round(one.head.rank_ic, 4),
            "R2 %": round(100.0 * one.head.r2, 3),
            "MSE": round(one.head.mse, 4),
        }
        for letter, folder, one in zip("AB", folders, (found.a, found.b), strict=True)
    ]
    span = f", sessions {found.span[0]} to {found.span[1]}" if found.span else ""
    text = table(pl.DataFrame(rows), title=f"{found.rows:,} common labels against the {found.target} target{span}")
    for name, gap in (("IC", found.ic), ("rank IC", found.rank_ic), ("MSE", found.mse)):
        text += f"{name}: A - B = {gap.value:+.5f} ± {gap.se:.5f}\n"
    return f"{text}\n{found.sentence}\n"
