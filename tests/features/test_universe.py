"""In: bars of members and of others. Out: the cross-section is of the universe alone; neutral below the quorum."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from klinepred.features import cross
from klinepred.features.build import F50, build_features
from klinepred.schema import PRICES
from tests.features.frames import bits_differ, built, float64, market

CROSS = [name for name in F50.names if name.startswith("cross__")]
NEUTRAL = {"cross__market_1": 0.0, "cross__relative_1": 0.0, "cross__rank_12": 0.0, "cross__beta_78": 1.0}
MEMBERS = ["A", "B", "C", "D", "E", "F"]
BARS = market(MEMBERS, days=6, seed=51, lost=0.03)
OTHERS = market(["0", "BB", "Z"], days=6, seed=52, lost=0.1, move=5e-3)


def _of(table: pl.DataFrame, *symbols: str) -> pl.DataFrame:
    return table.filter(pl.col("symbol").is_in(symbols))


def test_symbols_outside_the_universe_leave_no_trace_in_it() -> None:
    alone = float64(BARS, universe=MEMBERS)
    beside = float64(pl.concat([BARS, OTHERS]), universe=MEMBERS)
    assert bits_differ(alone, _of(beside, *MEMBERS)) == []


def test_the_order_of_rows_and_of_the_universe_does_not_matter() -> None:
    bars = BARS.with_columns(_dice=np.random.default_rng(1).random(BARS.height)).sort("_dice").drop("_dice")
    assert bits_differ(built(BARS, universe=MEMBERS).frame, build_features(bars, universe=MEMBERS[::-1]).frame) == []


def test_without_a_universe_all_symbols_are_it() -> None:
    table = build_features(BARS)
    assert table.universe == tuple(MEMBERS)
    assert bits_differ(table.frame, built(BARS, universe=MEMBERS).frame) == []


def test_members_that_are_not_there_yet_change_no_bit_of_the_others() -> None:
    late = market(["G"], days=6, seed=53).filter(pl.col("ts") > BARS["ts"].unique().sort()[200])
    alone = float64(BARS, universe=MEMBERS)
    joined = float64(pl.concat([BARS, late]), universe=[*MEMBERS, "G", "NEVER"])
    before = pl.col("ts") < late["ts"].min()
    assert bits_differ(alone.filter(before), _of(joined, *MEMBERS).filter(before)) == []
    assert bits_differ(alone, _of(joined, *MEMBERS)) == CROSS


def test_one_outside_is_measured_against_the_universe_without_counting_in_it() -> None:
    table = float64(pl.concat([BARS, OTHERS]), universe=MEMBERS)
    members = _of(table, *MEMBERS).select("ts", "symbol", "price__return_1", "price__return_12")
    outsider = _of(table, "Z")
    checked = 0
    for row in outsider.iter_rows(named=True):
        now = members.filter(pl.col("ts") == row["ts"])
        z, z_12 = now["price__return_1"].drop_nulls(), now["price__return_12"].drop_nulls()
        if row["price__return_12"] is None or len(z) < 5 or len(z_12) < 5:
            continue
        assert row["cross__market_1"] == pytest.approx(sum(z) / len(z), abs=1e-12)
        assert row["cross__relative_1"] == pytest.approx(row["price__return_1"] - sum(z) / len(z), abs=1e-12)
        assert row["cross__rank_12"] == pytest.approx((z_12 < row["price__return_12"]).mean() - 0.5, abs=1e-12)
        checked += 1
    assert checked > 20


@pytest.mark.parametrize("members", [["A"], ["A", "B", "C", "D"]])
def test_below_the_quorum_all_is_neutral(members: list[str]) -> None:
    table = float64(BARS, universe=members)
    shown = table.filter((pl.int_range(pl.len()) >= 100).over("symbol"))
    for name, value in NEUTRAL.items():
        known = shown[name].drop_nulls()
        assert known.unique().to_list() == [value], name
        assert name == "cross__rank_12" or known.len() == shown.height, name


def test_at_the_quorum_it_begins() -> None:
    table = float64(BARS, universe=MEMBERS[:5])
    assert table["cross__market_1"].drop_nulls().abs().max() > 0.0  # type: ignore[operator]


def test_equal_moves_share_a_rank() -> None:
    one = market(["A"], days=3, seed=54)
    same = pl.concat([one.with_columns(symbol=pl.lit(name)) for name in "ABCDE"])
    table = float64(same)
    assert table["cross__rank_12"].drop_nulls().unique().to_list() == [0.0]
    assert table["cross__relative_1"].drop_nulls().abs().max() < 1e-12  # type: ignore[operator]
    assert table["cross__beta_78"].drop_nulls()[-1] == pytest.approx(1.0)


def test_moves_that_differ_by_the_rounding_of_a_price_level_alone_share_a_rank() -> None:
    bars = market("ABCDEF", days=3, seed=55)
    level = pl.when(pl.col("symbol") == "B").then(3.0).when(pl.col("symbol") == "C").then(0.7).otherwise(1.0)
    one = bars.filter(pl.col("symbol") == "A")
    same = pl.concat([one.with_columns(symbol=pl.lit(name)) for name in "ABC"])
    priced = same.with_columns(pl.col(name) * level for name in PRICES)
    table = float64(pl.concat([priced, bars.filter(pl.col("symbol") > "C")]))
    ranks = [table.filter(pl.col("symbol") == name)["cross__rank_12"].to_list() for name in "ABC"]
    assert ranks[0] == ranks[1] == ranks[2]
    assert len(set(ranks[0])) > 3


def test_slices_of_time_are_put_together_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = float64(BARS)
    monkeypatch.setattr(cross, "SLICE", 50 * len(MEMBERS))
    assert bits_differ(whole, float64(BARS)) == []


def test_symbols_of_two_calendars_meet_at_the_times_both_trade() -> None:
    coins = market(["S", "T", "U", "V", "W"], "24/7", days=6, seed=55)
    table = float64(pl.concat([BARS, coins]), universe=["A", "B", "S", "T", "U", "V"])
    both = table.join(BARS.filter(pl.col("symbol") == "A").select("ts"), on="ts", how="semi")
    rows = both.filter((pl.col("symbol") == "A") & pl.col("price__return_1").is_not_null())
    night = table.filter((pl.col("symbol") == "S") & (pl.col("ts").dt.hour() < 12) & (pl.col("ts").dt.day() > 2))
    assert rows["cross__market_1"].abs().max() > 0.0  # type: ignore[operator]
    assert night["cross__market_1"].unique().to_list() == [0.0]  # four coins alone
