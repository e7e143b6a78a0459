"""In: a function, things. Out: what it gives for each, in their order, several worked on at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import polars as pl

from klinepred.headway import stepwise

T = TypeVar("T")
R = TypeVar("R")


def crew() -> int:
    """How many threads: one more than polars has, up to 8; while one plans a query, the others' are computed.

    Where polars has one, so have we: that process has been given one core, and others work on its neighbours.
    """
    size = pl.thread_pool_size()
    return 1 if size == 1 else min(size + 1, 8)


def each(function: Callable[[T], R], things: Iterable[T], *, what: str = "", total: int = 0) -> list[R]:
    """`function` of each thing, in their order; the first error ends it once those begun are through.

    `what` it is about and how many there are: for those who wait, where it may take long.
    """
    with ThreadPoolExecutor(crew(), "klinepred-features") as pool:
        done = pool.map(function, things)
        return list(stepwise(done, what, total=total) if what else done)
