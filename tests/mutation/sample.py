"""In: rooms, a seed, a count. Out: that many mutants by chance, of each room as many; the same for the same code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from tests.mutation.operators import Mutant, Source


@dataclass(frozen=True)
class Trial:
    """A mutant, the room it is of, and the tests it is to be tried by."""

    room: str
    mutant: Mutant
    tests: tuple[str, ...]


def sample(
    root: Path,
    rooms: Mapping[str, Mapping[str, tuple[str, ...]]],
    *,
    seed: int,
    count: int,
    counts: Callable[[Trial], bool],
) -> Iterator[Trial]:
    """One of each room in turn, each mutant of a room as likely as another; a larger sample begins with a smaller one.

    Parameters
    ----------
    counts
        Asked of each mutant; where it says no, the room's next takes its place.
    """
    decks = {name: filter(counts, _shuffled(root, name, modules, seed=seed)) for name, modules in rooms.items()}
    yield from islice(_in_turn(decks), count)


def _in_turn(rooms: Mapping[str, Iterator[Trial]]) -> Iterator[Trial]:
    decks = dict(rooms)
    while decks:
        for name in list(decks):
            trial = next(decks[name], None)
            if trial is None:
                del decks[name]
            else:
                yield trial


def _shuffled(root: Path, room: str, modules: Mapping[str, tuple[str, ...]], *, seed: int) -> Iterator[Trial]:
    sources = {module: Source(module, (root / module).read_text(encoding="utf-8")) for module in modules}
    spots = [(module, spot) for module, source in sources.items() for spot in source.spots]
    order = np.random.default_rng([seed, *room.encode()]).permutation(len(spots))
    seen: set[str] = set()
    for module, spot in (spots[place] for place in order):
        mutant = sources[module].mutant(spot)
        if mutant is not None and mutant.code not in seen:
            seen.add(mutant.code)
            yield Trial(room, mutant, modules[module])


def count_spots(root: Path, modules: Mapping[str, tuple[str, ...]]) -> int:
    """How many mutants a room has, the few that are no change included."""
    return sum(len(Source(module, (root / module).read_text(encoding="utf-8")).spots) for module in modules)
