"""In: a pure function, things. Out: `Engine`, who applies it to each; `HERE` does so in this process, in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """Applies pure functions; the results do not depend on who does."""

    @property
    def workers(self) -> int:
        """How many things are worked on at once."""

    def map(self, function: Callable[[T], R], things: Iterable[T]) -> Iterator[R]:
        """`function` of each thing, in their order.

        The function may be applied to a thing more than once, when a machine was lost: what it writes must be the same
        each time, and whole or not there. An error, of the function or of `things`, comes after all results before it.
        """

    def spread(self, function: Callable[[T], Iterator[R]], things: Iterable[T]) -> Iterator[R]:
        """What `function` yields of each thing, in their order; else as `map`."""


class Here:
    """This process, one thing after another."""

    workers = 1

    def map(self, function: Callable[[T], R], things: Iterable[T]) -> Iterator[R]:
        """As `Engine.map`."""
        return map(function, things)

    def spread(self, function: Callable[[T], Iterator[R]], things: Iterable[T]) -> Iterator[R]:
        """As `Engine.spread`; each result is asked for when the one before it has been used."""
        return (result for thing in things for result in function(thing))


HERE: Final = Here()
