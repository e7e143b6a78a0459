"""In: a folder. Out: a workspace there, with the shipped pipelines and presets to read and change."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from klinepred.cli.options import common, start
from klinepred.errors import UsageError
from klinepred.paths import Workspace, default_pipelines, default_presets, write_atomic
from klinepred.places import FILE, Places, check_address, read_places


@click.command(epilog="\b\nExample: klinepred init my-research", short_help="Make a workspace.")
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.option("--store", metavar="S3://…", help="Keep the bars there, on object storage; the rest stays in DIR.")
@click.option("--artifacts", metavar="S3://…", help="Keep the artifacts of MLflow's runs there.")
@click.option("--force", is_flag=True, help="Overwrite pipelines and presets that differ from the shipped ones.")
@common
def command(
    folder: Path | None,
    store: str | None,
    artifacts: str | None,
    force: bool,
    workspace: Path,
    quiet: bool,
    verbose: bool,
) -> int:
    """Make a workspace in DIR (default: the folder of -w).

    Copies the shipped pipelines and model presets there. Files of yours that differ stay as they are, unless --force.
    What is kept on object storage is noted in klinepred.toml.
    """
    if folder is not None and workspace != Path() and folder != workspace:
        raise UsageError(
            f"init {folder} -w {workspace}", expected="one folder", got="two", do=f"klinepred init {folder}"
        )
    space = start(folder or workspace, quiet=quiet, verbose=verbose)
    places = _places(space, store, artifacts)
    made, kept = copy_defaults(space, force=force)
    for room in (space.trained, space.mlruns, space.data):
        room.mkdir(parents=True, exist_ok=True)
    click.echo(f"workspace {space.root}")
    for what, address in (("bars", places.store), ("artifacts", places.artifacts)):
        if address is not None:
            click.echo(f"  {what} in {address}")
    for path in made:
        click.echo(f"  made     {path.relative_to(space.root)}")
    for path in kept:
        click.echo(f"  kept     {path.relative_to(space.root)} (differs from the shipped one; --force replaces it)")
    if not made and not kept:
        click.echo("  pipelines and presets were there already")
    where = "" if space.root == Path.cwd() else f"cd {shlex.quote(str(folder or workspace))} && "
    click.echo(f"next: {where}klinepred ingest    (Yahoo; or klinepred run -p demo, offline)")
    return 0


def _places(space: Workspace, store: str | None, artifacts: str | None) -> Places:
    """What is kept elsewhere, written down; bars that lie somewhere are not left behind."""
    have = read_places(space.root)
    places = Places(
        have.store if store is None else check_address(store, of="--store"),
        have.artifacts if artifacts is None else check_address(artifacts, of="--artifacts"),
    )
    if places.store != have.store and (have.store or (space.data / "bars").is_dir()):
        raise UsageError(
            f"--store {store}",
            expected="a workspace without bars",
            got=f"one that keeps them in {space.store}",
            do=f"make a new workspace; or copy the bars yourself, then write the address into {FILE}",
        )
    if places != have:
        write_atomic(space.root / FILE, places.to_toml())
    return places


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
