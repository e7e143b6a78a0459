"""In: a folder. Out: a pickle that would make a folder of a known name there if anything ran it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path


class Bomb:
    """Its pickle calls `os.mkdir(marker)` when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.marker),)


def marker_in(folder: Path) -> Path:
    """What must not be there afterwards."""
    return folder / "the payload ran"


def poison(folder: Path, *, protocol: int = 4) -> bytes:
    """The pickle."""
    return pickle.dumps(Bomb(marker_in(folder)), protocol=protocol)
