"""In: received beside stored bars. Out: symbols whose closes differ by a constant ratio, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from math import exp, log, sqrt
from typing import Any, Final, Literal

import polars as pl

CHANGE: Final = 0.0005
"""Closes that differ by less than this share tell nothing of a ratio."""
JUMP: Final = 0.01
"""Closes that differ by more than this share on a few bars already do."""
SAME_RATIO: Final = 0.004
"""Ratios within this share of their median are one ratio; rounding to cents of a 5-dollar stock stays inside."""
FEW, MANY = 3, 20
"""So many bars must agree on a ratio above `JUMP` (fewer if they are the whole overlap), or on any ratio."""
BLOCK: Final = 0.9
"""Share of the common bars between the first and the last of that ratio that must have it."""
STRANGE: Final = 0.05
"""Where over half of the overlap jumps, by differing ratios of this median size, two instruments share one name."""
VOLUMES: Final = 0.8
"""Share of the common bars whose volumes must tell the same story."""
SAME_VOLUME: Final = 0.01
VISIBLE: Final = 1.2
"""Only a ratio beyond this factor shows as a step in the prices themselves."""
WHOLE: Final = (2, 3, 4, 5, 6, 7, 8, 10, 15, 20, 25, 30, 40, 50, 100, 1000)
USUAL: Final = (*(Fraction(n) for n in WHOLE), Fraction(3, 2), Fraction(5, 4), Fraction(4, 3), Fraction(5, 2))
"""Factors of splits and units of price; their inverses as well."""
Side = Literal["whole", "older", "newer", "between"]


@dataclass(frozen=True)
class Edge:
    """A bar that came with the stored close."""

    ts: datetime
    close: float


@dataclass(frozen=True)
class Shift:
    """A constant ratio of received to stored closes of one symbol.

    Attributes
    ----------
    ratio
        Received over stored close; exactly a usual factor where it is one.
    same, common
        Bars with this ratio, and all common bars.
    first, last
        First and last bar of this ratio.
    side
        Which common bars have it: the whole overlap, the older ones (the newer are equal), the newer ones, or those
        between equal ones.
    before, after
        The last equal bar before `first`, the first after `last`; None = there is none.
    stored_first, stored_last
        Stored closes of `first` and `last`.
    volume
        What the volumes of the bars with this ratio show: they changed by the inverse (a split), are the same (a
        unit), are all zero, or neither.
    """

    symbol: str
    ratio: Fraction | float
    same: int
    common: int
    first: datetime
    last: datetime
    side: Side
    before: Edge | None
    after: Edge | None
    stored_first: float
    stored_last: float
    volume: Literal["split", "unit", "zero", "neither"]

    @property
    def words(self) -> str:
        """received closes are 1/4 of the stored ones on 78 of 78 common bars (from to)."""
        return (
            f"received closes are {in_words(self.ratio)} the stored ones on {self.same:,} of {self.common:,} common "
            f"bars ({self.first:%Y-%m-%d %H:%MZ} to {self.last:%Y-%m-%d %H:%MZ})"
        )

    @property
    def steps(self) -> Literal["stored", "received"] | None:
        """Which of the two histories has the jump where the ratio ends; None = the prices do not tell."""
        size = log(self.ratio)
        if self.side == "older" and self.after is not None:
            stored = log(self.after.close / self.stored_last)
            received = stored - size
        elif self.side == "newer" and self.before is not None:
            stored = log(self.stored_first / self.before.close)
            received = stored + size
        else:
            return None
        if abs(size) < log(VISIBLE) or min(abs(stored), abs(received)) > abs(size) / 3:
            return None
        return "stored" if abs(stored) > abs(received) else "received"

    def covers(self) -> pl.Expr:
        """True for stored bars (`ts`, `close`) on the side of the ratio.

        Stored bars between the last one with the ratio and the first without it, which did not come, belong to the
        level they are nearer to.
        """
        if self.side == "older" and self.after is not None:
            middle = sqrt(self.stored_last * self.after.close)
            here = (pl.col("close") > middle) == pl.lit(self.stored_last > middle)
            return (pl.col("ts") <= self.last) | ((pl.col("ts") < self.after.ts) & here)
        if self.side == "newer" and self.before is not None:
            middle = sqrt(self.stored_first * self.before.close)
            here = (pl.col("close") > middle) == pl.lit(self.stored_first > middle)
            return (pl.col("ts") >= self.first) | ((pl.col("ts") > self.before.ts) & here)
        return pl.lit(True)


@dataclass(frozen=True)
class Measured:
    """What the overlap of received and stored bars tells.

    Attributes
    ----------
    shifts
        Symbols on another basis.
    strange
        Symbols that look like another instrument, with the reason.
    doubtful
        Symbols of neither kind of which some closes differ by more than `CHANGE`: with more bars they might be.
    """

    shifts: Mapping[str, Shift]
    strange: Mapping[str, str]
    doubtful: frozenset[str]


def measure(common: pl.DataFrame) -> Measured:
    """Look for constant ratios.

    Parameters
    ----------
    common
        Bars both received and stored: symbol, ts, close, volume as received; `_close`, `_volume` as stored.
    """
    common = common.with_columns(ratio=pl.col("close") / pl.col("_close"))
    apart = common.filter((pl.col("ratio") - 1.0).abs() > CHANGE)
    if apart.is_empty():
        return Measured({}, {}, frozenset())
    shifts: dict[str, Shift] = {}
    strange: dict[str, str] = {}
    for row in _ratios(apart, common).iter_rows(named=True):
        name, size = row["symbol"], abs(row["median"] - 1.0)
        enough = row["same"] >= MANY or (size > JUMP and (row["same"] >= FEW or row["same"] == row["overlap"]))
        usual = usual_factor(row["median"], SAME_RATIO) is not None
        if enough and row["same"] >= BLOCK * row["block"] and (row["overlap"] > 1 or usual):
            here = common.filter(pl.col("symbol") == name).sort("ts")
            shifts[name] = _shift(name, here, row["median"])
        elif row["jumped"] > max(FEW, row["overlap"] // 2) and row["size"] > STRANGE:
            strange[name] = (
                f"received closes differ from the stored ones by {row['size']:.0%} in the middle on "
                f"{row['jumped']:,} of {row['overlap']:,} common bars: another instrument under this name?"
            )
    doubtful = frozenset(apart.get_column("symbol")) - set(shifts) - set(strange)
    return Measured(shifts, strange, doubtful)


def usual_factor(ratio: float, within: float) -> Fraction | None:
    """The factor of a split or a unit that `ratio` is, up to the share `within`."""
    big = max(ratio, 1.0 / ratio)
    near = min(USUAL, key=lambda factor: abs(big / float(factor) - 1.0))
    if abs(big / float(near) - 1.0) > within:
        return None
    return near if ratio > 1.0 else 1 / near


def in_words(ratio: Fraction | float) -> str:
    """4 times, 1/4 of, 3/2 times, 1.037 times."""
    part = f"{float(ratio):.6g}" if ratio > 1 else f"1/{float(1 / ratio):.6g}"
    shown = str(ratio) if isinstance(ratio, Fraction) else part
    return f"{shown} times" if ratio > 1 else f"{shown} of"


def _ratios(apart: pl.DataFrame, common: pl.DataFrame) -> pl.DataFrame:
    """Per symbol the middle ratio of the bars that differ, how many share it, and from where to where."""
    close = pl.min_horizontal(SAME_RATIO, (pl.col("median") - 1.0).abs() / 3.0)
    verdict = (
        apart.with_columns(median=pl.col("ratio").median().over("symbol"))
        .with_columns(same=(pl.col("ratio") / pl.col("median") - 1.0).abs() <= close)
        .group_by("symbol")
        .agg(
            median=pl.col("median").first(),
            jumped=((pl.col("ratio") - 1.0).abs() > JUMP).sum(),
            same=pl.col("same").sum(),
            size=pl.col("ratio").log().abs().median(),
            first=pl.col("ts").filter("same").min(),
            last=pl.col("ts").filter("same").max(),
        )
    )
    sizes = (
        common.select("symbol", "ts")
        .join(verdict.select("symbol", "first", "last"), on="symbol")
        .group_by("symbol")
        .agg(overlap=pl.len(), block=pl.col("ts").is_between("first", "last").sum())
    )
    return verdict.join(sizes, on="symbol").sort("symbol")


def _shift(symbol: str, common: pl.DataFrame, median: float) -> Shift:
    """All about the ratio of one symbol; `common` sorted by ts, with `ratio`."""
    limit = min(SAME_RATIO, abs(median - 1.0) / 3.0)
    same = common.filter((pl.col("ratio") / median - 1.0).abs() <= limit)
    sums = same.select(pl.col("close", "_close").sum()).row(0)
    measured = float(sums[0]) / float(sums[1])  # rounding of single closes averages out
    exact = usual_factor(measured, SAME_RATIO if same.height < MANY else SAME_RATIO / 4)
    first, last = same.row(0, named=True), same.row(-1, named=True)
    equal = common.filter((pl.col("ratio") - 1.0).abs() <= min(JUMP, abs(median - 1.0) / 3.0))
    nearest = [equal.filter(pl.col("ts") < first["ts"]).tail(1), equal.filter(pl.col("ts") > last["ts"]).head(1)]
    edges = [Edge(ts, close) for part in nearest for ts, close in part.select("ts", "_close").iter_rows()]
    before = max((edge for edge in edges if edge.ts < first["ts"]), key=lambda edge: edge.ts, default=None)
    after = min((edge for edge in edges if edge.ts > last["ts"]), key=lambda edge: edge.ts, default=None)
    side: Side = "between" if before and after else "newer" if before else "older" if after else "whole"
    return Shift(
        symbol=symbol,
        ratio=exact or measured,
        same=same.height,
        common=common.height,
        first=first["ts"],
        last=last["ts"],
        side=side,
        before=before,
        after=after,
        stored_first=first["_close"],
        stored_last=last["_close"],
        volume=_volume(same, median),
    )


def _volume(same: pl.DataFrame, ratio: float) -> Literal["split", "unit", "zero", "neither"]:
    """What the volumes did where the closes changed by `ratio`."""
    pairs = same.filter((pl.col("volume") > 0.0) & (pl.col("_volume") > 0.0))
    if pairs.is_empty():
        return "zero" if same["volume"].max() == same["_volume"].max() == 0.0 else "neither"
    limit = min(SAME_VOLUME, exp(abs(log(ratio)) / 3.0) - 1.0)
    shares: dict[str, Any] = pairs.select(
        # small volumes are rounded to whole shares
        split=_near(pl.col("volume"), pl.col("_volume") / ratio, limit).mean(),
        unit=_near(pl.col("volume"), pl.col("_volume"), limit).mean(),
    ).row(0, named=True)
    if max(shares.values()) < VOLUMES or shares["split"] == shares["unit"]:
        return "neither"
    return "split" if shares["split"] > shares["unit"] else "unit"


def _near(value: pl.Expr, wanted: pl.Expr, limit: float) -> pl.Expr:
    return (value - wanted).abs() <= pl.max_horizontal(wanted * limit, 1.0)
