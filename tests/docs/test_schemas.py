"""In: the commands of docs/json.md. Out: their answers are as the schemas say, and every key of these is explained."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import click
import pytest
from jsonschema import Draft202012Validator

from tests.cli.test_main import EVERY
from tests.conftest import Typed
from tests.docs.blocks import REPO
from tests.docs.carry import stand_in
from tests.docs.schemas import FOLDER, fits, schema
from tests.docs.space import NOW, Prepared

pytestmark = pytest.mark.timeout(900)  # two models are trained first

PAGE = (REPO / "docs" / "json.md").read_text(encoding="utf-8")
TABLE = re.findall(r"^\| `klinepred ([^`]+)` \| \[([\w-]+)\]\(schemas/\2\.json\) \|", PAGE, re.MULTILINE)
ELSEWHERE = {
    "audit": "tests/cli/test_audit.py",
    "amp-check": "tests/cli/test_amp_check.py",
    "tune": "tests/test_tune.py",
}
"""Schemas whose answers are dear to make; there they are made anyway."""


def test_every_schema_is_in_the_table_and_every_command_that_has_json() -> None:
    assert sorted(name for _, name in TABLE) == sorted(path.stem for path in FOLDER.glob("*.json"))
    for name, command in EVERY.items():
        forms = [one.type for one in command.params if "--format" in one.opts and isinstance(one.type, click.Choice)]
        if forms and "json" in forms[0].choices:
            assert any(line.startswith(f"{name} ") for line, _ in TABLE), name
    for name, place in ELSEWHERE.items():
        assert f'fits("{name}"' in (REPO / place).read_text(encoding="utf-8")


@pytest.mark.parametrize(("line", "name"), [one for one in TABLE if one[1] not in ELSEWHERE], ids=lambda text: text)
def test_the_answer_is_as_its_schema_says(line: str, name: str, prepared: Prepared, typed: Typed) -> None:
    words = shlex.split(stand_in(line, prepared))
    command = EVERY[" ".join(words[:2])] if " ".join(words[:2]) in EVERY else EVERY[words[0]]
    if "--now" not in words and any("--now" in parameter.opts for parameter in command.params):
        words += ["--now", NOW]
    code, out, err = typed(*words, "-q")
    assert code in (0, 1) if name == "doctor" else code == 0, err
    answer = json.loads(out)
    assert answer or name == "bars-compact"  # nothing to rewrite
    fits(name, answer)


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_a_schema_is_one_and_explains_its_keys(name: str) -> None:
    table = schema(name)
    Draft202012Validator.check_schema(table)
    assert table["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert table["title"]
    unexplained = [path for path, node in properties(table) if not node.get("description")]
    assert unexplained == []


def properties(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key that a schema describes."""
    if isinstance(node, dict):
        for key, value in node.get("properties", {}).items():
            yield f"{path}/{key}", value
            yield from properties(value, f"{path}/{key}")
        for name, value in node.get("$defs", {}).items():
            yield from properties(value, f"{path}/{name}")
        for below in ("items", "additionalProperties"):
            yield from properties(node.get(below), path)
