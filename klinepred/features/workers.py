"""In: a function, things. Out: what it gives for each, in their order, several worked on at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import polars as pl

T = TypeVar("T")
R = TypeVar("R")


def crew() -> int:
    """How many threads: one more than polars has, up to 8; while one plans a query, the others' are computed."""
    return min(pl.thread_pool_size() + 1, 8)


def each(function: Callable[[T], R], things: Iterable[T]) -> list[R]:
    """`function` of each thing, in their order; the first error ends it once those begun are through."""
    with ThreadPoolExecutor(crew(), "klinepred-features") as pool:
        return list(pool.map(function, things))
