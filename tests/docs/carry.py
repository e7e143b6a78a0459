"""In: a line of a page or of a help. Out: it is run in the prepared workspace, or parsed where that is listed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import click

from klinepred.cli import COMMANDS, main
from tests.docs.decisions import CODES, PARSED, REHEARSED, STAND_INS
from tests.docs.space import NOW, RUN, Prepared

T = TypeVar("T")


def parse(words: list[str]) -> tuple[click.Command, list[str]]:
    """The click command of `klinepred …`, its words being right; nothing is run."""
    rest = words[1:]
    command: click.Command = import_module(f"klinepred.cli.{COMMANDS[rest.pop(0)][0]}").command
    while isinstance(command, click.Group):
        command = command.commands[rest.pop(0)]
    command.make_context("klinepred", list(rest))
    return command, rest


def found(line: str, table: Mapping[str, T]) -> T | None:
    """What the first pattern that matches says."""
    return next((said for pattern, said in table.items() if re.match(pattern, line)), None)


def stand_in(text: str, prepared: Prepared) -> str:
    """`text` with something of the workspace for each word that stands for something of the reader's."""
    for word, what in STAND_INS.items():
        text = re.sub(rf"\b{word}\b", what.format(model=prepared.models["us-equities-5m"]), text)
    return re.sub(r"\bdemo-\d{8}T\d{6}Z-[0-9a-f]{8}\b", prepared.models["demo"], text)


def carry_out(line: str, prepared: Prepared) -> None:
    """Run one command of klinepred, or parse it where the decisions say so."""
    alone = re.split(r"\s+'?\|'?\s+", line)[0]
    words = [_at_home(word) for word in shlex.split(stand_in(alone, prepared))]
    command, _ = parse(words)
    if found(line, PARSED) or line in RUN:
        return
    RUN.add(line)
    rehearsed = found(line, REHEARSED)
    words += [rehearsed] if rehearsed else []
    takes_clock = any("--now" in parameter.opts for parameter in command.params)
    words += ["--now", NOW] if takes_clock and "--now" not in words else []
    code = main(words[1:])
    assert code in (found(line, CODES) or (0,)), f"{shlex.join(words)} ended with {code}"


def _at_home(word: str) -> str:
    return str(Path(word).expanduser()) if word.startswith("~/") else word
