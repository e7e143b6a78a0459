"""In: the name of a schema of docs/schemas, an answer. Out: nothing, or what in the answer the schema does not know."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from tests.docs.blocks import REPO

FOLDER = REPO / "docs" / "schemas"


def schema(name: str) -> dict[str, Any]:
    """As it stands in the file."""
    return dict(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def closed(node: Any) -> Any:
    """The schema, but refusing every key it does not describe: readers may meet new keys, the tests may not."""
    if isinstance(node, list):
        return [closed(one) for one in node]
    if not isinstance(node, dict):
        return node
    out = {key: closed(value) for key, value in node.items()}
    if (
        "properties" in out
        and isinstance(out["properties"], dict)
        and out.get("type") in ("object", ["object", "null"])
    ):
        out.setdefault("additionalProperties", False)
    return out


def fits(name: str, answer: Any) -> None:
    """Assert that `answer` is as the schema says, and has nothing beside it."""
    check = Draft202012Validator(closed(deepcopy(schema(name))), format_checker=FormatChecker())
    faults = [f"{'/'.join(map(str, fault.path))}: {fault.message[:300]}" for fault in check.iter_errors(answer)]
    assert not faults, "\n".join(faults[:10])
