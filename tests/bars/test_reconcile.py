"""In: received and stored bars. Out: new, revised, unchanged; a split, another unit or another instrument refused."""

from __future__ import annotations

import polars as pl
import pytest

from klinepred.bars.reconcile import reconcile
from klinepred.schema import PRICES
from tests.bars.made import walk


def _scaled(frame: pl.DataFrame, factor: float, digits: int = 2) -> pl.DataFrame:
    return frame.with_columns((pl.col(name) * factor).round(digits) for name in PRICES)


def test_bars_are_told_apart_one_by_one() -> None:
    stored = walk(["A"]).head(10)
    received = walk(["A"]).head(14).slice(4)
    changed = received.with_columns(
        close=pl.when(pl.int_range(pl.len()) == 2).then(pl.col("close") * 1.0001).otherwise("close")
    )
    out = reconcile(changed, stored)
    assert out.counts.row(0) == ("A", 4, 1, 5)
    assert out.revised["ts"].to_list() == [received["ts"][2]]
    assert out.new.equals(changed.slice(6))
    assert not out.refused


@pytest.mark.parametrize(("factor", "word"), [(0.25, "1/4"), (100.0, "100 times"), (0.1, "1/10"), (1.5, "1.5 times")])
def test_a_constant_ratio_is_refused_by_its_factor(factor: float, word: str) -> None:
    stored = walk(["A", "B"])
    received = pl.concat(
        [_scaled(stored.filter(pl.col("symbol") == "A"), factor), stored.filter(pl.col("symbol") == "B")]
    )
    out = reconcile(received, stored)
    assert list(out.refused) == ["A"]
    assert word in out.refused["A"]
    assert out.counts["symbol"].to_list() == ["B"]
    assert out.new.is_empty()
    assert out.revised.is_empty()


def test_a_split_in_the_middle_of_the_overlap_is_seen() -> None:
    stored = walk(["A"])
    received = pl.concat([_scaled(stored.head(150), 0.5), stored.slice(150)])
    assert "1/2" in reconcile(received, stored).refused["A"]


def test_a_split_seen_on_one_common_bar_is_refused() -> None:
    stored = walk(["A"]).head(1)
    received = _scaled(walk(["A"]).head(5), 0.1)
    assert "1/10" in reconcile(received, stored).refused["A"]


def test_another_instrument_under_the_name_is_refused() -> None:
    stored = walk(["A"], seed=1)
    received = walk(["A"], seed=2).with_columns(pl.col(name) * 3.0 * (1 + pl.col("volume") / 1e6) for name in PRICES)
    assert "another instrument" in reconcile(received, stored).refused["A"]


def test_late_revisions_of_a_few_bars_are_taken_over() -> None:
    stored = walk(["A"])
    received = stored.with_columns(
        close=pl.when(pl.int_range(pl.len()) % 50 == 0).then(pl.col("close") * 1.03).otherwise("close")
    )
    out = reconcile(received, stored)
    assert not out.refused
    assert out.revised.height == 5


def test_a_small_constant_ratio_on_all_bars_is_no_revision() -> None:
    stored = walk(["A"])
    assert "times" in reconcile(_scaled(stored, 1.004), stored).refused["A"]
    assert not reconcile(_scaled(stored, 1.00001, digits=4), stored).refused


def test_only_volume_changed_is_a_revision() -> None:
    stored = walk(["A"])
    out = reconcile(stored.with_columns(pl.col("volume") * 2.0), stored)
    assert out.counts.row(0) == ("A", 0, stored.height, 0)
