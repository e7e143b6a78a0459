"""In: received and stored bars. Out: each told apart as new, revised or unchanged."""

from __future__ import annotations

import polars as pl

from klinepred.bars.reconcile import Reconciled, compare, reconcile
from tests.bars.made import walk


def _reconcile(received: pl.DataFrame, stored: pl.DataFrame) -> Reconciled:
    return reconcile(compare(received, stored))


def test_bars_are_told_apart_one_by_one() -> None:
    stored = walk(["A"]).head(10)
    received = walk(["A"]).head(14).slice(4)
    changed = received.with_columns(
        close=pl.when(pl.int_range(pl.len()) == 2).then(pl.col("close") * 1.0001).otherwise("close")
    )
    out = _reconcile(changed, stored)
    assert out.counts.row(0) == ("A", 4, 1, 5)
    assert out.revised["ts"].to_list() == [received["ts"][2]]
    assert out.new.equals(changed.slice(6))


def test_nothing_stored_makes_all_bars_new() -> None:
    received = walk(["A", "B"]).head(300)
    out = _reconcile(received, received.clear())
    assert out.new.equals(received)
    assert out.counts.rows() == [("A", 234, 0, 0), ("B", 66, 0, 0)]


def test_only_volume_changed_is_a_revision() -> None:
    stored = walk(["A"])
    out = _reconcile(stored.with_columns(pl.col("volume") * 2.0), stored)
    assert out.counts.row(0) == ("A", 0, stored.height, 0)
