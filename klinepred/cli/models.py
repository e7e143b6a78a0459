"""In: the shelf of a workspace. Out: its trained models as rows, or all that one of them says of itself."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from klinepred.cli.endings import format_options
from klinepred.cli.group import Group
from klinepred.cli.options import common, complete_models, say, start
from klinepred.cli.output import write_json, write_rows
from klinepred.errors import ModelError
from klinepred.paths import Workspace

if TYPE_CHECKING:
    from klinepred.model.shelf import ModelEntry

log = logging.getLogger("klinepred")

ABOUT = {
    "pipeline": ("pipeline", "name"),
    "created": ("provenance", "created"),
    "run_id": ("provenance", "run_id"),
    "target": ("dataset", "target"),
    "horizon": ("dataset", "horizon"),
    "preset": ("model", "preset"),
    "layers": ("model", "layers"),
    "hidden": ("model", "hidden"),
    "members": ("members",),
    "precision": ("provenance", "precision"),
    "device": ("provenance", "device"),
    "epochs": ("provenance", "epochs"),
    "best_epoch": ("provenance", "best_epoch"),
    "val_loss": ("provenance", "val_loss"),
    "feature_set": ("features", "set"),
    "fingerprint": ("features", "fingerprint"),
    "train_end": ("split", "train_end"),
    "validation_end": ("split", "validation_end"),
    "store_version": ("provenance", "store_version"),
    "commit": ("provenance", "commit"),
    "leak_certificate": ("provenance", "leak_certificate"),
    "klinepred": ("provenance", "klinepred"),
    "torch": ("provenance", "torch"),
}
"""What `models show` says first, and where bundle.json keeps it."""


@click.group(
    cls=Group, epilog="\b\nExample: klinepred models list", short_help="List, show, promote and export trained models."
)
def command() -> None:
    """The trained models of a workspace, in models/trained."""


@command.command("list", epilog="\b\nExample: klinepred models list --format json")
@format_options()
@common
def list_(form: str, output: Path | None, workspace: Path, quiet: bool, verbose: bool) -> int:
    """List the trained models, oldest first; the champion is what predict uses unless told otherwise."""
    space = start(workspace, quiet=quiet, verbose=verbose)
    import polars as pl

    from klinepred.model.promotion import read_verdict
    from klinepred.model.shelf import list_models

    entries = list_models(space)
    rows = [
        {
            "model": entry.name,
            **{name: _fact(entry.table, *ABOUT[name]) for name in ("pipeline", "created", "target", "precision")},
            "symbols": len(_fact(entry.table, "universe") or ()),
            "epochs": _fact(entry.table, *ABOUT["epochs"]),
            "val_loss": _fact(entry.table, *ABOUT["val_loss"]),
            "leak_certificate": _fact(entry.table, *ABOUT["leak_certificate"]),
            "verdict": (read_verdict(entry.folder) or {}).get("verdict"),
            "champion": entry.champion,
            "run_id": _fact(entry.table, *ABOUT["run_id"]),
        }
        for entry in entries
    ]
    schema = {
        **dict.fromkeys(("model", "pipeline", "created", "target", "precision"), pl.String()),
        "symbols": pl.Int64(),
        "epochs": pl.Int64(),
        "val_loss": pl.Float64(),
        "leak_certificate": pl.String(),
        "verdict": pl.String(),
        "champion": pl.Boolean(),
        "run_id": pl.String(),
    }
    write_rows(pl.DataFrame(rows, schema=schema, strict=False), form=form, output=output)
    for name in _unreadable(space, entries):
        log.warning("%s is no model that can be read; klinepred models show says why", space.trained / name)
    if not entries:
        say(f"no trained model in {space.trained}; train one with klinepred train")
    return 0


@command.command(epilog="\b\nExample: klinepred models show --format json")
@click.argument("model", required=False, shell_complete=complete_models)
@format_options("table", "json")
@common
def show(model: str | None, form: str, output: Path | None, workspace: Path, quiet: bool, verbose: bool) -> int:
    """Show what MODEL says of itself (a name from the list or a folder; default: the champion, else the newest).

    As JSON: all of its bundle.json, with the feature names, scaler, split, calibration and the resolved pipeline.
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    from klinepred.model.bundle import read_table
    from klinepred.model.promotion import read_verdict

    folder = _folder(space, model)
    found = read_table(folder)
    if form == "json":
        write_json({"name": folder.name, "folder": folder, **found}, output=output)
        return 0
    import polars as pl

    universe = _fact(found, "universe") or []
    facts = {
        "model": folder.name,
        "folder": folder,
        **{name: _fact(found, *where) for name, where in ABOUT.items()},
        "symbols": f"{len(universe)}: {', '.join(map(str, universe[:12]))}{' …' if len(universe) > 12 else ''}",
        "verdict": (read_verdict(folder) or {}).get("sentence"),
        "report": folder / "report.html" if (folder / "report.html").is_file() else None,
    }
    shown = {name: str(value) for name, value in facts.items() if value not in (None, "")}
    frame = pl.DataFrame({"": list(shown), "value": list(shown.values())})
    write_rows(frame, form="table", output=output)
    return 0


@command.command(epilog="\b\nExample: klinepred models promote demo-20261130T101500Z-1f2e3d4c")
@click.argument("model", shell_complete=complete_models)
@click.option("--force", is_flag=True, help="Promote although certificate or verdict stand against it.")
@common
def promote(model: str, force: bool, workspace: Path, quiet: bool, verbose: bool) -> int:
    """Make MODEL the champion of its pipeline: the one predict uses unless told otherwise.

    Refused without a passed leak certificate, without a verdict (klinepred evaluate), with SUSPICIOUSLY GOOD, or with a
    verdict worse than the present champion's. MODEL is a name or a run id from `klinepred models list`.
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    from klinepred.model.promotion import promote as make_champion
    from klinepred.model.shelf import find_model

    done = make_champion(space, find_model(space, model), force=force)
    for line in done.overruled:
        log.warning("overruled: %s", line)
    from klinepred.training.registry import crown

    crown(space, pipeline=done.pipeline, run_id=done.run_id)
    before = "" if done.before in (None, done.model) else f", in place of {done.before}"
    click.echo(f"{done.model} is the champion of {done.pipeline or 'its pipeline'} (verdict {done.verdict}){before}")
    return 0


@command.command(epilog="\b\nExample: klinepred models export --to ~/handover")
@click.argument("model", required=False, shell_complete=complete_models)
@click.option(
    "--to", "to", required=True, type=click.Path(path_type=Path), help="Folder to write; new, or one to put it in."
)
@click.option("--format", "form", type=click.Choice(["bundle", "onnx"]), default="bundle", show_default=True)
@common
def export(model: str | None, to: Path, form: str, workspace: Path, quiet: bool, verbose: bool) -> int:
    """Copy MODEL to another place (a name or run id; default: the champion, else the newest).

    bundle: the folder as it is, which predict --model opens anywhere. onnx: the network alone, for other programs, with
    bundle.json for features, scaler and calibration; it is compared with PyTorch first. Needs klinepred[onnx].
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    from klinepred.model.export import export_bundle, export_onnx

    folder = _folder(space, model)
    click.echo((export_onnx if form == "onnx" else export_bundle)(folder, to))
    return 0


def _folder(space: Workspace, model: str | None) -> Path:
    from klinepred.model.shelf import choose_model, list_models

    if model is not None:
        return choose_model(space, pipeline="", name=model)
    entries = list_models(space)
    if not entries:
        raise ModelError(
            f"models of {space.root}",
            expected=f"a trained model in {space.trained}",
            got="none",
            do="train one first: klinepred train",
        )
    return next((entry.folder for entry in entries if entry.champion), entries[-1].folder)


def _unreadable(space: Workspace, entries: list[ModelEntry]) -> list[str]:
    if not space.trained.is_dir():
        return []
    known = {entry.name for entry in entries}
    folders = (path.name for path in space.trained.iterdir() if path.is_dir() and not path.name.startswith("."))
    return sorted(name for name in folders if name not in known)


def _fact(table: Any, *where: str) -> Any:
    for part in where:
        table = table.get(part) if isinstance(table, dict) else None
    return table
