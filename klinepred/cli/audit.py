"""In: a pipeline or a model, the store. Out: the leak certificate as table, JSON or HTML; its self-test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from klinepred.cli.endings import format_options
from klinepred.cli.options import common, pipeline_option, read_pipeline, say, set_option, start
from klinepred.cli.output import write_json, write_rows
from klinepred.errors import UsageError

if TYPE_CHECKING:
    from klinepred.audit.check import Certificate


@click.command(epilog="\b\nExample: klinepred audit -p demo --html leaks.html", short_help="The leak certificate.")
@pipeline_option
@set_option
@click.option("--model", metavar="MODEL", help="Audit a trained model: a name from models list, or its folder.")
@click.option("--self-test", is_flag=True, help="Plant leaks in a simulated market and see whether each is caught.")
@format_options("table", "json")
@click.option("--html", "html", type=click.Path(path_type=Path, dir_okay=False), help="Write a report to FILE as well.")
@common
def command(
    pipeline: str,
    overrides: tuple[str, ...],
    model: str | None,
    self_test: bool,
    form: str,
    output: Path | None,
    html: Path | None,
    workspace: Path,
    quiet: bool,
    verbose: bool,
) -> int:
    """Prove on the stored bars that nothing in the pipeline sees the future.

    Features, targets, split, scaler, inputs, sequences, training labels and predictions are recomputed with the future
    cut off or changed, and compared bit by bit with what they were. Works before any training, with random weights,
    and with --model on a trained one. docs/audit.md says what each check does. Exit code 1: a check failed.
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    if self_test and model is not None:
        raise UsageError(
            "--self-test",
            expected="it alone: leaks are planted in a simulated market",
            got=f"--model {model} as well",
            do="leave one of the two out",
        )
    if self_test:
        from klinepred.audit.selftest import self_test as run_self_test

        certificate, title = run_self_test(), ""
    else:
        run = read_pipeline(pipeline, overrides, space)
        from klinepred.pipeline import audit_model, audit_pipeline

        if model is None:
            certificate, title = audit_pipeline(run, space), run.name
        else:
            from klinepred.model.shelf import choose_model

            folder = choose_model(space, pipeline=run.name, name=model)
            certificate, title = audit_model(folder, space), folder.name
    if html is not None:
        from klinepred.audit.report import write_report

        write_report(certificate, html, title=title)
        say(f"report: {html}")
    if form == "json":
        write_json(certificate.to_dict(), output=output)
    else:
        _table(certificate, output=output)
    count, failed = len(certificate.checks), len(certificate.failed)
    say(f"leak certificate {certificate.word}: {count - failed} of {count} checks passed")
    return 0 if certificate.passed else 1


def _table(certificate: Certificate, *, output: Path | None) -> None:
    import polars as pl

    rows = [
        (check.kind, check.name, "passed" if check.passed else "FAILED", check.detail) for check in certificate.checks
    ]
    schema = dict.fromkeys(("kind", "name", "result", "detail"), pl.String())
    write_rows(pl.DataFrame(rows, schema=schema, orient="row"), form="table", output=output)
