"""In: the trailing bars of many symbols. Out: the features of each one's newest bar, by the expressions of all rows."""

# Shapes: N symbols with a new bar.

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import polars as pl

from klinepred.features.build import FEATURE_SETS
from klinepred.features.columns import Plan, own_columns, plan_of, shared_columns
from klinepred.features.cross import CROSS_INPUT, Flags, cross_columns
from klinepred.features.spec import Feature, FeatureSet
from klinepred.features.workers import each

SHIFT: Final = re.compile(r"\.shift\(\[dyn int: \d+\]\)$")
"""How polars writes the value of an earlier row."""
CODE: Final = "_code"
"""Number of a symbol: what tells symbols apart here."""
STEPS: Final = (110, 480)
"""Features are computed together where they look back about as far: over so many bars, or as many as they need."""


class Trailing(Protocol):
    """The last bars of each of the N symbols."""

    def __call__(self, bars: int, *, seasonal: bool = False) -> pl.DataFrame:
        """`CODE`, ts, open … volume and the columns of `klinepred.calendar.place`, by code and ts.

        Parameters
        ----------
        bars
            So many, or as many as there are.
        seasonal
            Of these only those of the newest one's place in the session, and those that begin a session.
        """


@dataclass(frozen=True)
class Group:
    """Features computed over the same rows.

    Attributes
    ----------
    bars
        How many last bars of a symbol they need.
    seasonal
        Whether only those that `Trailing` calls so.
    together
        Whether all symbols go into one query: expressions of klinepred's own do, of others nothing is known.
    """

    plan: Plan
    bars: int
    seasonal: bool
    together: bool


@dataclass(frozen=True)
class NewestPlan:
    """How the newest rows of a feature set are computed.

    Attributes
    ----------
    across
        Features of the cross-section.
    reach
        Bars of each symbol that they look back over; 0 = there are none.
    """

    features: FeatureSet
    groups: tuple[Group, ...]
    across: Plan
    reach: int


def newest_plan(features: FeatureSet, *, day: int) -> NewestPlan:
    """Group the features of a set by what they need; `day`: bars of the longest session."""
    dtype = pl.Float32()
    marks = {name: mark for known in FEATURE_SETS.values() for name, mark in known.marks.items()}
    across = [one for one in features.features if one.family == "cross"]
    buckets: dict[tuple[int, bool, bool], list[Feature]] = {}
    if across:
        buckets[STEPS[0], False, True] = []  # what the cross-section reads comes from here
    for one in features.features:
        if one.family != "cross":
            together = marks.get(one.name) == one.fingerprint
            bars = _need(one, day)
            step = next((step for step in STEPS if bars <= step), bars)
            buckets.setdefault((step, together and one.seasonal, together), []).append(one)
    groups = [
        Group(plan_of(mine, dtype), max([_need(one, day) for one in mine], default=step) + 1, seasonal, together)
        for (step, seasonal, together), mine in sorted(buckets.items(), key=lambda item: item[0])
    ]
    reach = max((one.lookback_bars for one in across), default=0)
    return NewestPlan(features, tuple(groups), plan_of(across, dtype), reach)


def _need(feature: Feature, day: int) -> int:
    """Bars, its own included: whole sessions before the running one may be as long as the longest."""
    sessions = (feature.lookback_sessions + 1) * day if feature.lookback_sessions else 0
    return max(feature.lookback_bars, feature.first_value, sessions)


def own_newest(plan: NewestPlan, trailing: Trailing) -> pl.DataFrame:
    """Features of each symbol's newest bar from its own bars.

    Returns
    -------
    polars.DataFrame
        `CODE`, the columns of `CROSS_INPUT` (where there is a cross-section), masked features in Float32; N rows by
        code.
    """
    first = plan.groups[0]

    def columns(group: Group) -> pl.DataFrame:
        bars = trailing(group.bars, seasonal=group.seasonal)
        if group.together:
            return _together(bars, group.plan, with_moves=bool(plan.across.names) and group is first)
        return _apart(bars, group.plan)

    parts = each(columns, plan.groups)
    return pl.concat([parts[0], *(part.drop(CODE) for part in parts[1:])], how="horizontal")


def _together(bars: pl.DataFrame, plan: Plan, *, with_moves: bool) -> pl.DataFrame:
    moves = [value.alias(name) for name, value in CROSS_INPUT.items()] if with_moves else []
    table = shared_columns(bars, plan, by=CODE)
    near = [value for value in (*plan.values, *moves) if is_near(value)]
    far = [value for value in (*plan.values, *moves) if not is_near(value)]
    ends = np.cumsum(table.get_column(CODE).rle().struct.field("len").to_numpy()) - 1
    last = table.select(CODE, "_row", *near)[ends]
    if far:
        groups = table.lazy().group_by(CODE, maintain_order=True)
        last = last.hstack(groups.agg(value.last() for value in far).drop(CODE).collect())
    return last.with_columns(plan.masks).select(CODE, *(CROSS_INPUT if with_moves else ()), *plan.names)


def is_near(value: pl.Expr) -> bool:
    """Whether a value depends on its own row and rows at a fixed distance before it, and on no others between.

    The last row of many symbols' bars, one after another, then has its own symbol's value without any grouping, as long
    as there are so many bars. Whatever is not known to be so is taken for far.
    """
    value = value.meta.undo_aliases()
    known = value.meta.is_literal() or value.meta.is_row_separable() or SHIFT.search(str(value)) is not None
    return known and all(is_near(part) for part in value.meta.pop())


def _apart(bars: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    """Symbol by symbol, as `build_features` does it."""

    def newest(part: pl.DataFrame) -> pl.DataFrame:
        values = own_columns(part, plan).tail(1)
        return values.with_columns(plan.masks).select(pl.lit(part.item(0, CODE), pl.Int32).alias(CODE), *plan.names)

    named = bars.with_columns(symbol=pl.col(CODE).cast(pl.String))
    return pl.concat(each(newest, named.partition_by(CODE, maintain_order=True)))


def across_newest(plan: NewestPlan, moves: pl.DataFrame, *, codes: np.ndarray, member_S: Flags) -> pl.DataFrame:
    """Features of the cross-section of the newest bars.

    Parameters
    ----------
    moves
        `CODE`, ts, `_row` and the columns of `CROSS_INPUT` of all symbols from where the features look back to, by
        code and ts.
    codes
        Ascending: whose are wanted.
    member_S
        Of each symbol in `moves`, in order, whether it is of the universe.
    """
    sizes = moves.get_column(CODE).rle().struct.field("len")
    market_N, rank_N = cross_columns(
        moves.get_column("_z").to_numpy(),
        moves.get_column("_z_12").to_numpy(),
        ts_N=moves.get_column("ts").to_physical().to_numpy(),
        sizes=sizes.to_numpy().astype(np.int64),
        member_S=member_S,
    )
    crossed = moves.with_columns(
        _market=pl.Series(market_N, nan_to_null=True), _rank=pl.Series(rank_N, nan_to_null=True)
    )
    last = (
        crossed.lazy()
        .filter(pl.col(CODE).is_in(codes.tolist()))
        .group_by(CODE, maintain_order=True)
        .agg(pl.col("_row").last(), *(value.last() for value in plan.across.values))
        .collect()
    )
    return last.with_columns(plan.across.masks).select(CODE, *plan.across.names)
