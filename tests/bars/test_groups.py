"""In: symbols with their counts of bars. Out: groups as they are packed by hand."""

from __future__ import annotations

import polars as pl
import pytest

from klinepred.bars.groups import groups


@pytest.mark.parametrize(
    ("bars", "packed"),
    [
        ((), []),
        ((3, 3, 4, 1), [["s0", "s1", "s2"], ["s3"]]),
        ((11, 1, 9, 2), [["s0"], ["s1", "s2"], ["s3"]]),  # one that is too large stands alone
        ((10, 10), [["s0"], ["s1"]]),
    ],
)
def test_neighbours_stand_together_up_to_the_limit(bars: tuple[int, ...], packed: list[list[str]]) -> None:
    names = [f"s{number}" for number in range(len(bars))]
    sizes = pl.DataFrame({"symbol": names, "len": bars, "other": names}, schema_overrides={"len": pl.Int64})
    assert list(groups(sizes, most=10)) == packed
