"""In: a pipeline in TOML, overrides `a.b=c`. Out: a frozen, checked `Pipeline`; unknown keys are refused by name."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

from pydantic import BaseModel, ValidationError

from klinepred.errors import ConfigError
from klinepred.paths import Workspace, default_pipelines, default_presets
from klinepred.settings import ModelSettings, Pipeline
from klinepred.settings.network import check_network
from klinepred.settings.toml_file import check_depth, read_toml, value_of


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
    table = read_toml(path)
    table.setdefault("name", path.stem)
    return change_pipeline(table, overrides=overrides, where=str(name), workspace=workspace)


def change_pipeline(
    table: dict[str, Any], *, overrides: list[str] | tuple[str, ...], where: str, workspace: Workspace | None = None
) -> Pipeline:
    """A pipeline as plain nested dictionaries with overrides applied. The rest as `load_pipeline`."""
    check_depth(table, where=f"pipeline {where}")
    table = copy.deepcopy(table)
    for text in overrides:
        _override(table, text)
    check_depth(table, where=f"pipeline {where}")
    return parse_pipeline(table, where=where, workspace=workspace)


def parse_pipeline(table: dict[str, Any], *, where: str, workspace: Workspace | None = None) -> Pipeline:
    """Check a pipeline given as plain nested dictionaries; `where` names it in messages. Errors as `load_pipeline`.

    A preset is read for the keys of `model` that are not given: a resolved pipeline needs no preset file.
    """
    model = table.get("model", {})
    if isinstance(model, dict) and not ModelSettings.model_fields.keys() <= model.keys():
        preset = model.get("preset", ModelSettings.model_fields["preset"].default)
        table = {**table, "model": {**load_preset(str(preset), workspace=workspace), **model, "preset": preset}}
    try:
        run = Pipeline.model_validate(table)
    except ValidationError as error:
        raise _explain(error, where) from error
    _check_features(run, where)
    check_network(run.model, run.dataset, run.train)
    return run


def _check_features(run: Pipeline, where: str) -> None:
    """Refuse names that there are not, and what SQL may not do, when the file is read and not when it is used."""
    if run.features.exclude:
        from klinepred.formula.builtin import check_excluded

        check_excluded(run.features.exclude, where=f"pipeline {where}: features.exclude")
    if run.features.custom:
        from klinepred.formula.names import check_name
        from klinepred.formula.parse import parse_formula

        for name, text in run.features.custom.items():
            check_name(name, where=f"pipeline {where}: features.custom")
            parse_formula(text, where=f"pipeline {where}: features.custom.{name}")


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
            return read_toml(path)
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


def _override(table: dict[str, Any], text: str) -> None:
    key, sign, raw = text.partition("=")
    parts = key.strip().split(".")
    if not sign or not all(parts):
        raise ConfigError(
            f"--set {text}", expected="section.key=value", got=repr(text), do="write it like --set train.epochs=3"
        )
    value = value_of(raw.strip())
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
    first, *others = error.errors()
    spot = _cut(_dotted(first["loc"]))
    also = f"; then look at {_listed(sorted({_dotted(more['loc']) for more in others}))}" if others else ""
    if first["type"] == "extra_forbidden":
        parent, wrong = first["loc"][:-1], str(first["loc"][-1])
        near = _nearest(parent, wrong[:80])
        return ConfigError(
            f"pipeline {where}: unknown key {spot}",
            expected=f"keys of {_dotted(parent) or 'the pipeline'}: {', '.join(sorted(_section(parent).model_fields))}",
            got=_cut(wrong) or "a key without a name",
            do=(f"did you mean {near}?" if near else "remove it, or use one of these keys") + also,
        )
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "a value that is")
    return ConfigError(
        f"pipeline {where}: {spot or 'settings that do not fit together'}",
        expected=_EXPECTED.get(first["type"], message),
        got="the values given" if isinstance(first["input"], dict) else _short(first["input"]),
        do="change the value in the TOML file or with --set" + also,
    )


_EXPECTED: Final = {
    "tuple_type": 'a list, such as ["AAPL", "MSFT"]',
    "model_type": "a section with keys of its own",
    "model_attributes_type": "a section with keys of its own",
    "string_type": 'text in quotes, such as "XNYS"',
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "date_type": "a date, such as 2026-01-02",
    "date_from_datetime_parsing": "a date, such as 2026-01-02",
    "date_from_datetime_inexact": "a date without a time, such as 2026-01-02",
    "string_pattern_mismatch": "1 to 64 letters, digits, dots, dashes or underscores, a letter or digit first",
    "missing": "a value: this key has no default",
}
"""What a user should write, by the type of pydantic's complaint; the others come with words that are clear enough."""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _cut(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


def _listed(names: list[str]) -> str:
    """A file of another program may have any number of keys that are none of ours."""
    return ", ".join(_cut(name) for name in names[:8]) + (f" and {len(names) - 8:,} more" if len(names) > 8 else "")


def _dotted(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)


def _section(location: tuple[int | str, ...]) -> type[BaseModel]:
    model: Any = Pipeline
    for part in location:
        model = model.model_fields[str(part)].annotation
    return cast("type[BaseModel]", model)


def _nearest(parent: tuple[int | str, ...], wrong: str) -> str | None:
    """The valid key that `wrong` most likely stands for: a slip of the pen here, or a key of another section."""
    everywhere: dict[str, list[str]] = {}
    for spot in _keys(Pipeline, ()):
        everywhere.setdefault(spot[-1], []).append(".".join(spot))
    if wrong in everywhere:
        return everywhere[wrong][0]
    if near := difflib.get_close_matches(wrong, _section(parent).model_fields, n=1, cutoff=0.6):
        return _dotted((*parent, near[0]))
    near = difflib.get_close_matches(wrong, everywhere, n=1, cutoff=0.75)
    return everywhere[near[0]][0] if near else None


def _keys(model: type[BaseModel], above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        yield (*above, name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation, (*above, name))
