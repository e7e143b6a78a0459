"""In: symbols with their counts of bars. Out: neighbouring symbols together, as many as may be in memory at once."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl


def groups(sizes: pl.DataFrame, *, most: int) -> Iterator[list[str]]:
    """Groups of symbols in their order, each of `most` bars at most, unless a single symbol has more.

    Parameters
    ----------
    sizes
        The symbol and its bars, in the first two columns.
    """
    names: list[str] = []
    total = 0
    for symbol, bars, *_ in sizes.iter_rows():
        if names and total + bars > most:
            yield names
            names, total = [], 0
        names.append(symbol)
        total += bars
    if names:
        yield names
