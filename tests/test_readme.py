"""In: the README. Out: its commands can be typed, its Python names exist, its paths are there."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

import klinepred
from klinepred.cli import COMMANDS

REPO = Path(__file__).parents[1]
README = (REPO / "README.md").read_text(encoding="utf-8")


def blocks() -> Iterator[tuple[str, str]]:
    yield from re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = (line.partition("#")[0] for kind, body in blocks() if not kind for line in body.splitlines())
    return [part.strip() for line in lines for part in line.split("&&") if part.strip().startswith("klinepred ")]


def test_readme_opens_with_the_two_commands() -> None:
    first = next(body for _, body in blocks())
    assert re.findall(r"^make (\w+)", first, re.MULTILINE) == ["demo", "test"]


@pytest.mark.parametrize("line", commands())
def test_every_command_of_the_readme_can_be_typed(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, name, *words = shlex.split(line)
    command: click.Command = import_module(f"klinepred.cli.{COMMANDS[name][0]}").command
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    command.make_context(name, words)  # parses, runs nothing


def test_every_call_of_the_readme_is_public() -> None:
    (body,) = (body for kind, body in blocks() if kind == "python")
    used = {
        node.attr
        for node in ast.walk(ast.parse(body))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "kp"
    }
    assert used
    assert used <= set(klinepred.__all__)


def test_every_path_of_the_readme_is_in_the_repository() -> None:
    table = README.partition("| in this repository | |")[2].partition("\n\n")[0]
    paths = [
        path
        for line in table.splitlines()
        for path in re.findall(r"`([\w./-]+)`", line.partition("|")[2].split("|")[0])
    ]
    assert len(paths) > 10
    for path in paths:
        assert (REPO / path).exists() or (REPO / "klinepred" / path).exists(), path
