"""In: a workspace. Out: the trained models on its shelf, and the one that predicts unless another is named."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klinepred.errors import ModelError, UsageError
from klinepred.model.bundle import TABLE, ModelBundle, read_table
from klinepred.paths import Workspace

CHAMPION = "champion.json"
LEAST_DIGITS = 8
"""Digits of a run's id that name it."""


@dataclass(frozen=True)
class ModelEntry:
    """One bundle of `models/trained`, as its JSON tells it."""

    name: str
    folder: Path
    pipeline: str
    created: str
    champion: bool
    table: dict[str, Any]


def shelf_name(bundle: ModelBundle) -> str:
    """Name of the folder a trained model gets: its pipeline, when it was made, the first digits of its run."""
    stamp = str(bundle.provenance.get("created", "")).translate({ord("-"): None, ord(":"): None})
    parts = (bundle.pipeline.get("name") or "model", stamp, bundle.run_id[:LEAST_DIGITS])
    return "-".join(part for part in parts if part)


def list_models(space: Workspace) -> list[ModelEntry]:
    """All readable bundles of the workspace, oldest first; unreadable folders are left out."""
    best = {*champions(space).values()}
    found = []
    for path in sorted(space.trained.glob(f"*/{TABLE}")):
        if path.parent.name.startswith("."):
            continue
        try:
            table = read_table(path.parent)
        except ModelError:
            continue
        made = table.get("provenance", {})
        found.append(
            ModelEntry(
                name=path.parent.name,
                folder=path.parent,
                pipeline=str(table.get("pipeline", {}).get("name", "")),
                created=str(made.get("created", "")),
                champion=path.parent.name in best,
                table=table,
            )
        )
    return sorted(found, key=lambda entry: (entry.created, entry.name))


def choose_model(space: Workspace, *, pipeline: str, name: str | None = None) -> Path:
    """Folder of the model to use.

    Parameters
    ----------
    name
        A name of the shelf or a path. Without it: the champion if it belongs to `pipeline`, else the newest model of
        that pipeline.

    Raises
    ------
    ModelError
        Nothing fits; the message lists what there is.
    """
    if name is not None:
        return find_model(space, name)
    entries = list_models(space)
    own = [entry for entry in entries if entry.pipeline == pipeline]
    best = champions(space)
    chosen = best.get(pipeline, best.get(""))
    if chosen is not None and chosen not in {entry.name for entry in entries}:
        raise ModelError(
            f"champion {chosen!r}, named by {space.trained / CHAMPION}",
            expected="a model of the workspace that can be read",
            got="no such folder, or a damaged one",
            do=f"name another with --model, or remove {CHAMPION} to use the newest",
        )
    for entry in own:
        if entry.champion:
            return entry.folder
    if own:
        return own[-1].folder
    others = sorted({entry.pipeline for entry in entries if entry.pipeline})
    raise ModelError(
        f"model of pipeline {pipeline!r}",
        expected=f"a trained model in {space.trained}",
        got=f"models of {', '.join(others)} only" if others else "none",
        do=f"use -p {others[0]}" if others else f"train one first: klinepred train -p {pipeline}",
    )


def find_model(space: Workspace, name: str) -> Path:
    """Folder of the model `name`: a name of the shelf, the MLflow run it comes from (its first eight digits do), or a
    path.

    Raises
    ------
    ModelError, UsageError
        There is none, or several begin so; the message lists what there is. Or it is a path that does not exist.
    """
    if Path(name).name in ("", ".."):
        raise UsageError(
            f"model {name!r}", expected="the name, the run or the folder of a model", got="none", do="name one"
        )
    shelved = space.trained / name
    if Path(name).name == name and shelved.is_dir():
        return shelved
    entries = list_models(space)
    run = name.lower()
    if len(run) >= LEAST_DIGITS and set(run) <= set("0123456789abcdef"):
        runs = [entry for entry in entries if str(entry.table.get("provenance", {}).get("run_id", "")).startswith(run)]
        if len(runs) == 1:
            return runs[0].folder
    if Path(name).exists():
        return Path(name)
    if Path(name).name != name:
        raise UsageError(
            f"model {name}",
            expected="a folder as `klinepred train` or `klinepred models export` writes it",
            got="no such path",
            do="check it, or name a model from `klinepred models list`",
        )
    raise ModelError(
        f"model {name!r}",
        expected="a folder, or a name or run id from `klinepred models list`",
        got=f"none of them; the workspace has {', '.join(entry.name for entry in entries[-5:]) or 'no model'}",
        do="name one of these, or train one with `klinepred train`" if entries else "train one first: klinepred train",
    )


def champions(space: Workspace) -> dict[str, str]:
    """By pipeline the model that was promoted last; the key "" stands for a file that does not name pipelines.

    Raises
    ------
    ModelError
        The file is damaged.
    """
    path = space.trained / CHAMPION
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        return {}
    except (ValueError, RecursionError) as error:
        raise _no_champions(path, "text that is not JSON") from error
    named = table.get("pipelines") if isinstance(table, dict) else None
    if isinstance(named, dict):
        return {str(pipeline): str(model) for pipeline, model in named.items()}
    if not isinstance(table, dict) or not isinstance(table.get("model"), str):
        raise _no_champions(path, f"JSON without a model: {json.dumps(table)[:60]}")
    return {"": table["model"]}


def _no_champions(path: Path, got: str) -> ModelError:
    return ModelError(
        f"{path}",
        expected='JSON such as {"model": "NAME"}',
        got=got,
        do="promote a model again, or remove the file to use the newest",
    )
