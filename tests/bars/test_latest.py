"""In: long histories, some with pauses. Out: claims that their last bars are found, and that no others are read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from polars.io.plugins import register_io_source

from klinepred.bars.latest import first_stamps, last_bars
from klinepred.schema import BAR_SCHEMA

END = datetime(2026, 1, 1, tzinfo=UTC)


def history(days: int) -> pl.DataFrame:
    """Six bars a day: A to the end, B with three years' pause, C that came five days ago, D that ended long before."""

    def of(name: str, begin: datetime, count: int) -> pl.DataFrame:
        ts = [begin + timedelta(hours=4 * number) for number in range(6 * count)]
        return pl.DataFrame(
            {
                "symbol": name,
                "ts": ts,
                **dict.fromkeys(("open", "high", "low", "close"), 1.0),
                "volume": range(len(ts)),
            },
            schema=BAR_SCHEMA,
        )

    first = END - timedelta(days=days)
    return pl.concat(
        [
            of("A", first, days),
            of("B", first, 20),
            of("B", END - timedelta(days=2), 2),
            of("C", END - timedelta(days=5), 5),
            of("D", first, 9),
        ]
    )


class Counted:
    """A source that counts the rows of which it had to give prices."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame, self.rows = frame, 0

    def scan(self) -> pl.LazyFrame:
        def give(
            columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, _size: int | None
        ) -> Iterator[pl.DataFrame]:
            part = self.frame if predicate is None else self.frame.filter(predicate)
            part = part if limit is None else part.head(limit)
            if columns is None or "close" in columns:
                self.rows += part.height
            yield part if columns is None else part.select(columns)

        return register_io_source(give, schema=self.frame.schema)


@pytest.mark.parametrize("reach", [1, 12, 13, 120, 130, 100_000])
@pytest.mark.parametrize("back", [0, 1, 3, 1000, 5000])
def test_last_bars_are_those_that_reading_everything_gives(reach: int, back: int) -> None:
    frame, before = history(2000), END - timedelta(days=back)
    whole = frame.filter(pl.col("ts") < before).group_by("symbol", maintain_order=True).tail(reach)
    assert last_bars(frame.lazy(), before=before, reach=reach).equals(whole.select(frame.columns))


def test_what_is_read_does_not_grow_with_the_history() -> None:
    read = []
    for days in (400, 4000):
        source = Counted(history(days).filter(pl.col("symbol") == "A"))
        assert last_bars(source.scan(), before=END, reach=100).height == 100
        read.append(source.rows)
    assert read[0] == read[1] <= 6 * 64


def test_a_symbol_that_paused_costs_its_own_history_alone() -> None:
    source = Counted(history(2000))
    found = last_bars(source.scan(), before=END, reach=30)
    assert dict(found.group_by("symbol").len().sort("symbol").iter_rows()) == {"A": 30, "B": 30, "C": 30, "D": 30}
    others = sum(count for name, count in source.frame.group_by("symbol").len().iter_rows() if name != "A")
    assert source.rows <= others + 6 * 64


def test_symbols_that_are_not_asked_for_are_not_there() -> None:
    frame = history(100)
    begins = first_stamps(frame.lazy())
    assert begins["C"] == END - timedelta(days=5)
    found = last_bars(frame.lazy(), before=END, reach=3, begins={"A": begins["A"]})
    assert found.get_column("symbol").unique().to_list() == ["A"]
    assert last_bars(frame.lazy(), before=END, reach=3, begins={}).is_empty()
