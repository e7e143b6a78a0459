"""In: a pipeline in TOML, overrides `a.b=c`. Out: a frozen, checked `Pipeline`; unknown keys are refused by name."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from klinepred.errors import ConfigError
from klinepred.paths import Workspace, default_pipelines, default_presets
from klinepred.settings import Pipeline


def load_pipeline(
    name: str | Path = "us-equities-5m",
    *,
    overrides: list[str] | tuple[str, ...] = (),
    workspace: Workspace | None = None,
) -> Pipeline:
    """Read a pipeline, fill in its preset, apply overrides, check everything.

    Parameters
    ----------
    name
        A name (the workspace's `pipelines/NAME.toml` wins over the shipped one) or the path of a TOML file.
    overrides
        `section.key=value` as on the command line's `--set`; values are TOML, bare words are text.

    Raises
    ------
    ConfigError
        No such pipeline, not TOML, an unknown key (the nearest valid one is named), or a value out of range.
    """
    path = _find(str(name), workspace)
    table = _read_toml(path)
    table.setdefault("name", path.stem)
    for text in overrides:
        _override(table, text)
    return parse_pipeline(table, where=str(name), workspace=workspace)


def parse_pipeline(table: dict[str, Any], *, where: str, workspace: Workspace | None = None) -> Pipeline:
    """Check a pipeline given as plain nested dictionaries; `where` names it in messages. Errors as `load_pipeline`."""
    model = table.get("model", {})
    if isinstance(model, dict):
        preset = model.get("preset", "lstm-3x256")
        table = {**table, "model": {**load_preset(str(preset), workspace=workspace), **model, "preset": preset}}
    try:
        return Pipeline.model_validate(table)
    except ValidationError as error:
        raise _explain(error, where) from error


def load_preset(name: str, *, workspace: Workspace | None = None) -> dict[str, Any]:
    """The keys of `models/presets/NAME.toml`, the workspace's before the shipped one.

    Raises
    ------
    ConfigError
        There is no such preset, or it is not TOML.
    """
    folders = [*([workspace.presets] if workspace else []), default_presets()]
    for folder in folders:
        path = folder / f"{name}.toml"
        if Path(name).name == name and path.is_file():
            return _read_toml(path)
    have = sorted({path.stem for folder in folders for path in folder.glob("*.toml")})
    raise ConfigError(
        f"model.preset {name!r}",
        expected=f"one of: {', '.join(have)}",
        got=repr(name),
        do="name one of these, or add the file models/presets/NAME.toml to the workspace",
    )


def pipeline_names(workspace: Workspace | None = None) -> list[str]:
    """Names that `load_pipeline` knows without a path."""
    folders = [*([workspace.pipelines] if workspace else []), default_pipelines()]
    return sorted({path.stem for folder in folders for path in folder.glob("*.toml")})


def _find(name: str, workspace: Workspace | None) -> Path:
    if name.endswith(".toml") or "/" in name or "\\" in name:
        path = Path(name).expanduser()
        if path.is_file():
            return path
        got = "no such file"
    else:
        for folder in [*([workspace.pipelines] if workspace else []), default_pipelines()]:
            if (folder / f"{name}.toml").is_file():
                return folder / f"{name}.toml"
        got = "no pipeline of that name in the workspace or among the shipped ones"
    have = pipeline_names(workspace)
    near = difflib.get_close_matches(name, have, n=1)
    raise ConfigError(
        f"pipeline {name!r}",
        expected=f"a path to a TOML file or one of: {', '.join(have)}",
        got=got,
        do=f"use -p {near[0]}" if near else "use -p with one of these names",
    )


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}", expected="a TOML file in UTF-8", got=f"text that is not: {error}", do="mend that line"
        ) from error


def _override(table: dict[str, Any], text: str) -> None:
    key, sign, raw = text.partition("=")
    parts = key.strip().split(".")
    if not sign or not all(parts):
        raise ConfigError(
            f"--set {text}", expected="section.key=value", got=repr(text), do="write it like --set train.epochs=3"
        )
    try:
        value = tomllib.loads(f"v = {raw.strip()}")["v"]
    except tomllib.TOMLDecodeError:
        value = raw.strip()
    spot = table
    for part in parts[:-1]:
        below = spot.setdefault(part, {})
        if not isinstance(below, dict):
            raise ConfigError(
                f"--set {text}", expected=f"{part} to be a section", got="a single value", do="shorten the key"
            )
        spot = below
    spot[parts[-1]] = value


def _explain(error: ValidationError, where: str) -> ConfigError:
    first = error.errors()[0]
    spot = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = _keys_at(first["loc"][:-1])
        wrong = str(first["loc"][-1])
        near = difflib.get_close_matches(wrong, known, n=1, cutoff=0.4)
        parent = ".".join(str(part) for part in first["loc"][:-1])
        best = ".".join([*([parent] if parent else []), near[0]]) if near else None
        return ConfigError(
            f"pipeline {where}: unknown key {spot}",
            expected=f"keys of {parent or 'the pipeline'}: {', '.join(known)}",
            got=wrong,
            do=f"did you mean {best}?" if best else "remove it, or use one of these keys",
        )
    message = first["msg"].removeprefix("Value error, ")
    return ConfigError(
        f"pipeline {where}: {spot or 'settings that do not fit together'}",
        expected=message,
        got=repr(first["input"]) if not isinstance(first["input"], dict) else "the values given",
        do="change the value in the TOML file or with --set",
    )


def _keys_at(location: tuple[int | str, ...]) -> list[str]:
    model: Any = Pipeline
    for part in location:
        model = model.model_fields[str(part)].annotation
    return sorted(model.model_fields)
