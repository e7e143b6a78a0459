"""In: a resolved pipeline. Out: its text in TOML, which `load_pipeline` reads back to the same settings."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

from klinepred.settings import Pipeline


def pipeline_toml(run: Pipeline) -> str:
    """Every setting of `run` with its value; those that are None (not set) are left out."""
    lines: list[str] = []
    _section(run.model_dump(exclude_none=True), (), lines)
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
