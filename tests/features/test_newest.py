"""In: bars of several symbols with gaps. Out: the newest rows alone are those of the whole table."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

import klinepred as kp
from klinepred.features.build import F50, features_and_moves
from klinepred.features.columns import placed_bars
from klinepred.features.newest import CODE, across_newest, is_near, newest_plan, own_newest
from klinepred.features.spec import FeatureSet
from klinepred.live.trail import PLACED, Trail
from tests.bars.made import walk

SYMBOLS = [f"S{number}" for number in range(7)]
UNIVERSE = SYMBOLS[:6]
CUSTOM = kp.load_pipeline("demo", overrides=['features.custom.mine__step="ln(close / lag(close, 3))"']).features


def market(seed: int, clock: str) -> pl.DataFrame:
    """Bars of 30 days, of which some are missing; the second symbol is young."""
    chance = np.random.default_rng(seed)
    frame = walk(SYMBOLS, start="2026-04-20", days=40, seed=seed, clock=kp.Clock.parse(clock))
    frame = frame.filter(pl.Series(chance.random(frame.height) > 0.02))
    young = (pl.col("symbol") == "S1") & (pl.col("ts") < datetime(2026, 5, 24, tzinfo=UTC))
    return kp.check_bars(frame.filter(~young), clock=kp.Clock.parse(clock)).collect()


@pytest.mark.parametrize(("seed", "clock"), [(1, "XNYS"), (2, "XHKG")])
def test_newest_rows_equal_those_of_the_whole_table(seed: int, clock: str) -> None:
    features = kp.features_for(CUSTOM)
    placed = placed_bars(market(seed, clock))
    whole, moves = features_and_moves(placed, features, universe=UNIVERSE)
    day = int(placed["session_bars"].max())  # type: ignore[arg-type]
    plan = newest_plan(features, day=day)
    for back in (0, 1, 40):  # the end, and earlier, amid a session
        cut = placed.with_columns(_row=moves["_row"], _z=moves["_z"], _z_12=moves["_z_12"])
        cut = cut.filter(pl.col("ts") <= placed["ts"].unique().sort()[-1 - back])
        trail = Trail(len(SYMBOLS), keep=24 * day)
        for code, part in enumerate(cut.partition_by("symbol", maintain_order=True)):
            kept = part.tail(24 * day)
            values = {name: kept[name].to_physical().fill_null(float("nan")) for name in (*PLACED, "_z", "_z_12")}
            trail.fill(code, {name: value.to_numpy() for name, value in values.items()})
        codes = np.arange(len(SYMBOLS))

        def trailing(bars: int, *, seasonal: bool = False, trail: Trail = trail) -> pl.DataFrame:
            spots = trail.seasonal(np.arange(7), bars) if seasonal else trail.spots(np.arange(7), bars)
            return trail.frame(spots, PLACED)

        own = own_newest(plan, trailing)
        begin = int(trail.take("ts", trail.spots(codes, plan.reach)).min())
        near = trail.frame(trail.since(begin, at_least=plan.reach), ("ts", "_z", "_z_12"))
        rows = cut.group_by("symbol", maintain_order=True).agg(pl.col("_row").last())["_row"]
        near = near.with_columns(_row=rows.gather(near[CODE]))
        member_S = np.array([name in UNIVERSE for name in SYMBOLS])
        got = own.hstack(across_newest(plan, near, codes=codes, member_S=member_S).drop(CODE))
        last = whole.frame.join(cut.select("symbol", "ts"), on=["symbol", "ts"], how="semi", maintain_order="left")
        want = last.group_by("symbol", maintain_order=True).last()
        for name in features.names:
            a, b = (frame[name].fill_null(float("nan")).to_numpy() for frame in (got, want))
            scale = max(1.0, float(np.nanmax(np.abs(b), initial=0.0)))
            assert a == pytest.approx(b, abs=2e-6 * scale, nan_ok=True), (name, back)


def test_what_looks_further_than_a_fixed_distance_is_grouped() -> None:
    value = pl.col("close")
    assert is_near((value / value.shift(3)).log().cast(pl.Float32).alias("x"))
    assert is_near(pl.when(value > 0.0).then(value).otherwise(0.0).clip(0.0, 1.0))
    for far in (
        value.rolling_mean(3),
        value / value.ewm_mean(span=3),
        value.cum_sum() + 1.0,
        value.shift(-1),
        pl.when(value.forward_fill() > 0.0).then(value),
        value - value.mean(),
        value.shift(1).over("session"),
    ):
        assert not is_near(far), str(far)


def test_features_of_others_are_computed_symbol_by_symbol() -> None:
    features = kp.features_for(CUSTOM)
    plan = newest_plan(features, day=78)
    apart = [group for group in plan.groups if not group.together]
    assert [group.plan.names for group in apart] == [["mine__step"]]
    assert all(group.together for group in newest_plan(F50, day=78).groups)
    seasonal = [group for group in newest_plan(F50, day=78).groups if group.seasonal]
    assert [group.plan.names for group in seasonal] == [["volume__same_time_20"]]
    assert isinstance(features, FeatureSet)
