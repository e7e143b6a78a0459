"""In: the environment that `torchrun`, or whoever starts processes together, has set. Out: its numbers, checked."""

from __future__ import annotations

import os
from typing import Final

from klinepred.errors import UsageError

WORLD: Final = "WORLD_SIZE"
RANK: Final = "RANK"
LOCAL: Final = "LOCAL_RANK"
PORT: Final = "MASTER_PORT"
RESTARTS: Final = "TORCHELASTIC_RESTART_COUNT"


def world_size() -> int:
    """How many processes were started together; 1 where nothing says so.

    Raises
    ------
    UsageError
        The environment says something that is no such number.
    """
    return _number(WORLD, default=1, least=1)


def rank() -> int:
    """Number of this process among them, from 0. Errors as `world_size`."""
    world = world_size()
    return 0 if world == 1 else _number(RANK, default=0, most=world - 1)


def local_rank(default: int) -> int:
    """Its number on its own machine; `default` where nothing says so. Errors as `world_size`."""
    return _number(LOCAL, default=default)


def restarts() -> int:
    """How often `torchrun` has started them again. Errors as `world_size`."""
    return _number(RESTARTS, default=0)


def check_launch() -> None:
    """Make sure that the numbers of several processes can be. Errors as `world_size`."""
    rank()
    local_rank(0)
    restarts()
    _number(PORT, default=1, least=1, most=65_535)


def refuse_several(what: str, *, do: str) -> None:
    """Nothing in a process that was started alone.

    Raises
    ------
    UsageError
        Several processes were started, for something that only one can do.
    """
    count = world_size()
    if count > 1:
        raise UsageError(what, expected="one process", got=f"{count} ({WORLD}), as torchrun starts them", do=do)


def _number(name: str, *, default: int, least: int = 0, most: int | None = None) -> int:
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    if text.isascii() and text.isdigit() and least <= int(text) and (most is None or int(text) <= most):
        return int(text)
    reach = f"from {least} on" if most is None else f"from {least} to {most}" if most > least else str(least)
    raise UsageError(
        f"environment variable {name}",
        expected=f"a whole number {reach}",
        got=repr(text[:80]),
        do="start several processes with torchrun, which sets it; for a process alone, "
        + (f"unset {name}" if name == WORLD else f"unset {WORLD} and {name}"),
    )
