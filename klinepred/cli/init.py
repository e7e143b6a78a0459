"""In: a folder. Out: a workspace there, with the shipped pipelines and presets to read and change."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from klinepred.cli.options import common, start
from klinepred.errors import UsageError
from klinepred.paths import Workspace, default_pipelines, default_presets, write_atomic


@click.command(epilog="Example: klinepred init my-research", short_help="Make a workspace.")
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.option("--force", is_flag=True, help="Overwrite pipelines and presets that differ from the shipped ones.")
@common
def command(folder: Path | None, force: bool, workspace: Path, quiet: bool, verbose: bool) -> int:
    """Make a workspace in DIR (default: the folder of -w).

    Copies the shipped pipelines and model presets there. Files of yours that differ stay as they are, unless --force.
    """
    if folder is not None and workspace != Path() and folder != workspace:
        raise UsageError(
            f"init {folder} -w {workspace}", expected="one folder", got="two", do=f"klinepred init {folder}"
        )
    space = start(folder or workspace, quiet=quiet, verbose=verbose)
    made, kept = copy_defaults(space, force=force)
    for room in (space.trained, space.mlruns, space.data):
        room.mkdir(parents=True, exist_ok=True)
    click.echo(f"workspace {space.root}")
    for path in made:
        click.echo(f"  made     {path.relative_to(space.root)}")
    for path in kept:
        click.echo(f"  kept     {path.relative_to(space.root)} (differs from the shipped one; --force replaces it)")
    if not made and not kept:
        click.echo("  pipelines and presets were there already")
    where = "" if space.root == Path.cwd() else f"cd {shlex.quote(str(folder or workspace))} && "
    click.echo(f"next: {where}klinepred ingest    (Yahoo; or klinepred run -p demo, offline)")
    return 0


def copy_defaults(space: Workspace, *, force: bool = False) -> tuple[list[Path], list[Path]]:
    """Copy what is shipped; the answer names the files written, and those kept because they differ."""
    made, kept = [], []
    for source, target in ((default_pipelines(), space.pipelines), (default_presets(), space.presets)):
        for path in sorted(source.glob("*.toml")):
            own, content = target / path.name, path.read_bytes()
            if own.exists() and own.read_bytes() == content:
                continue
            if own.exists() and not force:
                kept.append(own)
                continue
            write_atomic(own, content)
            made.append(own)
    return made, kept
