"""In: work done in steps. Out: whoever watches is told how far it is; by default nobody does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from types import TracebackType
from typing import Protocol, TypeVar

T = TypeVar("T")


class Screen(Protocol):
    """Who shows work under way: a row for each piece of it, several at once where one is part of another."""

    def open(self, what: str, *, total: int, done: int) -> int:
        """A piece of work begins, `done` of its steps being done already; gives the number of its row."""

    def move(self, row: int, *, what: str, done: int, left_s: float | None) -> None:
        """It stands at step `done`; `left_s` are the seconds left, where the work itself knows them."""

    def close(self, row: int) -> None:
        """It has ended, or was given up."""

    def stop(self) -> None:
        """Nothing is watched any more, whatever is still under way."""


_maker: Callable[[], Screen] | None = None
_screen: Screen | None = None


def watch(maker: Callable[[], Screen] | None) -> None:
    """From now on work is shown on what `maker` makes when the first piece begins; None: on nothing.

    Of this process alone, as its log is: work that other processes do is told by the one that waits for them.
    """
    global _maker, _screen
    if _screen is not None:
        _screen.stop()
    _maker, _screen = maker, None


def _present() -> Screen | None:
    global _screen
    if _screen is None and _maker is not None:
        _screen = _maker()
    return _screen


class Work:
    """A piece of work of `total` steps that begins now; as a context manager it ends with its block.

    Parameters
    ----------
    what
        A few words for people: `features of 30 symbols`.
    done
        Steps that were done before, in a run that is resumed, say.
    """

    def __init__(self, what: str, *, total: int, done: int = 0) -> None:
        self._what, self._done = what, done
        self._screen = _present()
        self._row = -1 if self._screen is None else self._screen.open(what, total=total, done=done)

    def step(self, by: int = 1) -> None:
        """So many more steps are done."""
        self.at(self._done + by)

    def at(self, done: int, *, what: str | None = None, left_s: float | None = None) -> None:
        """So many steps are done in all; `what` is from now on other words, `left_s` the seconds left."""
        self._what, self._done = self._what if what is None else what, done
        if self._screen is not None:
            self._screen.move(self._row, what=self._what, done=done, left_s=left_s)

    def end(self) -> None:
        """It is over; a second time does nothing."""
        if self._screen is not None:
            self._screen.close(self._row)
        self._screen = None

    def __enter__(self) -> Work:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def stepwise(things: Iterable[T], what: str, *, total: int | None = None) -> Iterator[T]:
    """The things one by one, each a step that is done when the next one is asked for.

    Parameters
    ----------
    total
        How many there are; default: their length, and unknown where they have none.
    """
    count = total if total is not None else len(things) if isinstance(things, Sized) else 0
    with Work(what, total=count) as work:
        for thing in things:
            yield thing
            work.step()
