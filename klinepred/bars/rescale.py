"""In: a constant ratio of received to stored bars, splits told, what is allowed. Out: rescaled bars, or why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from math import log
from typing import Any, Final, Literal

import polars as pl

from klinepred.bars.basis import MANY, SAME_RATIO, Shift, in_words
from klinepred.schema import PRICES

Permit = Literal["confirmed", "always", "never"]
AWAY: Final = "or ingest its whole history on one basis into a fresh workspace"


@dataclass(frozen=True)
class Rescale:
    """Stored bars of one symbol that are brought to the basis of the received ones.

    Attributes
    ----------
    price, volume
        What their prices and volumes are multiplied by.
    kind
        split: volumes change by the inverse; unit: they stay (pence and pounds, another currency).
    told
        The source itself tells of the split.
    same, common
        How many of the common bars have the ratio; 0 of 0 where nothing overlaps.
    covers
        True for the stored bars (`ts`, `close`) that it is about, as long as they did not come.
    silent
        All volumes of the common bars are zero: nothing is known of those that are not.
    """

    symbol: str
    price: Fraction | float
    volume: Fraction | float
    kind: Literal["split", "unit"]
    told: bool
    same: int
    common: int
    covers: pl.Expr
    silent: bool = False


@dataclass(frozen=True)
class Rescaled:
    """The record of one rescaling, for the commit and the report.

    Attributes
    ----------
    together
        It is about bars of several parts of one ingest: those rescaled may have come in it.
    """

    symbol: str
    price: Fraction | float
    volume: Fraction | float
    kind: Literal["split", "unit"]
    told: bool
    same: int
    common: int
    bars: int
    first_ts: datetime | None
    last_ts: datetime | None
    together: bool = False

    @property
    def words(self) -> str:
        """4,680 stored bars … rescaled: prices times 1/4, volumes times 4 …, from … to …."""
        why = "a split that the source tells of" if self.told else f"{self.same:,} of {self.common:,} common bars"
        if self.told and self.common:
            why += f", shown by {self.same:,} of {self.common:,} common bars"
        volume = "volumes as they were" if self.kind == "unit" else f"volumes times {_shown(self.volume)}"
        if self.first_ts is None or self.last_ts is None:
            return f"all stored bars came on another basis and are revised: prices times {_shown(self.price)} ({why})"
        what = "bars on another basis than the newest" if self.together else "stored bars that did not come"
        return (
            f"{self.bars:,} {what} are rescaled, {self.first_ts:%Y-%m-%d %H:%MZ} to "
            f"{self.last_ts:%Y-%m-%d %H:%MZ}: prices times {_shown(self.price)}, {volume} ({why})"
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON: `evidence` says source or overlap; `from` and `to` are the first and the last rescaled bar."""
        return {
            "symbol": self.symbol,
            "factor": _shown(self.price),
            "price_factor": float(self.price),
            "volume_factor": float(self.volume),
            "kind": self.kind,
            "evidence": "source" if self.told else "overlap",
            "same": self.same,
            "common": self.common,
            "bars": self.bars,
            "from": self.first_ts and f"{self.first_ts:%Y-%m-%dT%H:%M:%SZ}",
            "to": self.last_ts and f"{self.last_ts:%Y-%m-%dT%H:%M:%SZ}",
        }


def plan(shift: Shift, *, splits: pl.DataFrame | None, permit: Permit) -> Rescale | str:
    """Whether the stored bars that did not come may be rescaled by the ratio of those that did; else why not.

    Parameters
    ----------
    splits
        `SPLIT_SCHEMA`: what the source tells; None = nothing.
    permit
        confirmed: only by a split that the source tells of; always: by any ratio that is plain; never.
    """
    lead = f"{shift.words}: a split or another unit of price"
    if shift.side == "between":
        return f"{lead}, between bars that are equal; ingest that stretch on the basis of the others, {AWAY}"
    end = shift.after.ts if shift.side == "older" and shift.after else None
    told = _told(shift.symbol, splits, after=shift.last, until=end)
    confirmed = told is not None and abs(float(shift.ratio * told) - 1.0) <= SAME_RATIO and shift.side != "newer"
    if shift.side != "whole" and not confirmed and shift.steps != "stored":
        what = "the received ones jump there themselves" if shift.steps == "received" else "nothing says which is right"
        return f"{lead} on the {shift.side} ones only, and {what}; ingest them on one basis, {AWAY}"
    if permit == "never" or (permit == "confirmed" and not confirmed):
        return f"{lead}; to multiply the stored bars that did not come by {_shown(shift.ratio)}, pass --rescale, {AWAY}"
    if confirmed and told is not None:
        price: Fraction | float = 1 / told
    elif isinstance(shift.ratio, Fraction) or shift.same >= MANY:
        price = shift.ratio
    else:
        return f"{lead}; that is no usual factor, and fewer than {MANY} bars show it; {AWAY}"
    if shift.volume == "neither":
        return (
            f"{lead}; volumes neither stayed nor changed by the inverse, so nothing says how to rescale the stored "
            f"ones that did not come; {AWAY}"
        )
    split = shift.volume == "split" or (shift.volume == "zero" and confirmed)
    kind: Literal["split", "unit"] = "split" if split else "unit"
    return Rescale(
        symbol=shift.symbol,
        price=price,
        volume=1 / price if kind == "split" else Fraction(1),
        kind=kind,
        told=confirmed,
        same=shift.same,
        common=shift.common,
        covers=shift.covers(),
        silent=shift.volume == "zero" and not confirmed,
    )


def plan_apart(
    symbol: str, *, last: tuple[datetime, float], first: tuple[datetime, float], splits: pl.DataFrame, permit: Permit
) -> Rescale | str | None:
    """The same where nothing overlaps and the source tells of a split after the last stored bar.

    Parameters
    ----------
    last, first
        Stamp and close of the last stored and of the first received bar.

    Returns
    -------
    Rescale, or str
        The rescaling, or why not.
    None
        The source tells of none, or prices go on at the stored level: the stored bars have it already.
    """
    told = _told(symbol, splits, after=last[0], until=None)
    if told is None:
        return None
    step, size = log(first[1] / last[1]), log(told)
    if abs(step) < abs(step + size):
        return None
    if permit != "always":
        return (
            f"the source tells of a split, {_shown(told)} for 1, after the last stored bar "
            f"({last[0]:%Y-%m-%d %H:%MZ}, close {last[1]:.6g}; the first received one has {first[1]:.6g}), and no bar "
            f"overlaps to confirm it; to multiply the stored prices by {_shown(1 / told)} and the volumes by "
            f"{_shown(told)}, pass --rescale, {AWAY}"
        )
    return Rescale(symbol, 1 / told, told, "split", told=True, same=0, common=0, covers=pl.lit(True))


def apply(stored: pl.DataFrame, rescale: Rescale) -> tuple[pl.DataFrame, Rescaled]:
    """Multiply stored bars of the symbol; order among open, high, low and close survives, as rounding is monotone.

    Parameters
    ----------
    stored
        All stored bars of the symbol that this delivery does not replace.

    Returns
    -------
    tuple
        All of `stored`, those on the old basis multiplied, and the record.
    """
    here = rescale.covers
    moved = stored.filter(here)
    price = times(rescale.price)
    bars = stored.with_columns(
        *(pl.when(here).then(price(pl.col(name))).otherwise(pl.col(name)).alias(name) for name in PRICES),
        pl.when(here).then(times(rescale.volume)(pl.col("volume"))).otherwise(pl.col("volume")).alias("volume"),
    )
    first, last = moved.select(first=pl.col("ts").min(), last=pl.col("ts").max()).row(0)
    return bars, Rescaled(
        symbol=rescale.symbol,
        price=rescale.price,
        volume=rescale.volume,
        kind=rescale.kind,
        told=rescale.told,
        same=rescale.same,
        common=rescale.common,
        bars=moved.height,
        first_ts=first,
        last_ts=last,
    )


def times(factor: Fraction | float) -> Callable[[pl.Expr], pl.Expr]:
    """Multiplies by `factor`, exactly rounded for fractions: 1/10 is a division by 10, never a product with 0.1."""
    if isinstance(factor, Fraction):
        top, bottom = float(factor.numerator), float(factor.denominator)
        return lambda value: value * top / bottom
    return lambda value: value * factor


def _told(symbol: str, splits: pl.DataFrame | None, *, after: datetime, until: datetime | None) -> Fraction | None:
    """New shares for one old one by the splits after `after`, up to `until`; None = there is none."""
    if splits is None:
        return None
    late = splits.filter((pl.col("symbol") == symbol) & (pl.col("ts") > after))
    if until is not None:
        late = late.filter(pl.col("ts") <= until)
    product = Fraction(1)
    for ratio in late.get_column("ratio").to_list():
        product *= Fraction(ratio).limit_denominator(1000)
    return product if late.height and product > 0 and product != 1 else None


def _shown(factor: Fraction | float) -> str:
    return in_words(factor).rsplit(" ", 1)[0]
