"""In: a resolved pipeline. Out: its text in TOML, which `load_pipeline` reads back; its settings as parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from typing import Any, Final

from klinepred.settings import Pipeline

PARAM_CHARS: Final = 250
"""Longest value of a parameter that every MLflow server takes."""


def pipeline_toml(run: Pipeline) -> str:
    """Every setting of `run` with its value; those that are None (not set) are left out."""
    return toml_text(run.model_dump(exclude_none=True))


def toml_text(table: Mapping[str, Any]) -> str:
    """TOML of plain nested dictionaries."""
    lines: list[str] = []
    _section(dict(table), (), lines)
    return "\n".join(lines).strip() + "\n"


def _section(table: dict[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if path and plain:
        lines += ["", f"[{'.'.join(path)}]"]
    lines += [f"{key} = {_value(value)}" for key, value in plain.items()]
    for key, value in table.items():
        if isinstance(value, dict):
            _section(value, (*path, key), lines)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, tuple | list):
        return f"[{', '.join(_value(item) for item in value)}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def flat_settings(run: Pipeline) -> dict[str, str]:
    """Settings as `section.key`, short enough for any server; lists (symbols, paths) and what no training reads (the
    search) stand in config.json instead."""
    out: dict[str, str] = {}

    def walk(table: Mapping[str, Any], prefix: str) -> None:
        for key, value in table.items():
            if isinstance(value, Mapping):
                walk(value, f"{prefix}{key}.")
            elif not isinstance(value, list):
                out[f"{prefix}{key}"] = str(value)[:PARAM_CHARS]

    walk(run.model_dump(mode="json", exclude={"description", "tune"}), "")
    return out
