"""In: work under way. Out: `Heard`: a screen that remembers each piece of it, and how far it came."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from klinepred import headway


@dataclass
class Piece:
    """A piece of work; `left_s` as it was told last."""

    what: str
    total: int
    done: int
    left_s: float | None = None
    ended: bool = False


@dataclass
class Heard:
    """Implements `klinepred.headway.Screen`."""

    pieces: list[Piece] = field(default_factory=list)

    def open(self, what: str, *, total: int, done: int) -> int:
        self.pieces.append(Piece(what, total, done))
        return len(self.pieces) - 1

    def move(self, row: int, *, what: str, done: int, left_s: float | None) -> None:
        piece = self.pieces[row]
        piece.what, piece.done, piece.left_s = what, done, left_s

    def close(self, row: int) -> None:
        self.pieces[row].ended = True

    def stop(self) -> None:
        return None

    def whole(self) -> set[str]:
        """What came to its last step, and ended."""
        return {piece.what for piece in self.pieces if piece.ended and piece.done == piece.total > 0}


@contextmanager
def listening() -> Iterator[Heard]:
    """All work of this process is heard, whatever a command line says of its terminal."""
    heard = Heard()
    with pytest.MonkeyPatch.context() as patch:
        for module in ("klinepred.cli", "klinepred.cli.options", "klinepred.cli.ranged"):
            patch.setattr(f"{module}.watch", lambda _: None)
        headway.watch(lambda: heard)
        try:
            yield heard
        finally:
            headway.watch(None)
