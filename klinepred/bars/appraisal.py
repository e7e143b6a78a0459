"""In: good bars of a delivery. Out: what stands beside them in the store, which are odd, which symbols are rebased."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import polars as pl

from klinepred.bars.basis import Shift, measure
from klinepred.bars.isolated import NEAR, RUN
from klinepred.bars.reconcile import compare
from klinepred.bars.rescale import Permit, Rescale, plan, plan_apart
from klinepred.bars.sift import CONTEXT, Sifted, sift
from klinepred.bars.surroundings import read_around, read_edges, read_suspects
from klinepred.paths import Workspace


@dataclass(frozen=True)
class Appraisal:
    """What a delivery looks like beside the store.

    Attributes
    ----------
    stored
        Stored bars of its symbols, at its times and around them.
    sifted
        The delivery without isolated price errors.
    compared
        Its bars beside the stored ones, as `compare` gives them.
    plans
        Symbols on another basis than the store: how to rescale it, or why not.
    strange
        Symbols that look like another instrument, with the reason.
    doubtful
        Symbols that might be either, with more bars.
    """

    stored: pl.DataFrame
    sifted: Sifted
    compared: pl.DataFrame
    plans: Mapping[str, Rescale | str]
    strange: Mapping[str, str]
    doubtful: frozenset[str]


def appraise(
    good: pl.DataFrame,
    space: Workspace,
    *,
    known: Collection[str],
    splits: pl.DataFrame | None,
    permit: Permit,
) -> Appraisal:
    """Compare a delivery with the store.

    Parameters
    ----------
    known
        Symbols that may have stored bars.
    splits, permit
        See `plan`.
    """
    stored = _stored(good, space, known)
    compared = compare(good, stored)
    seen = measure(_common(compared))
    apart = _apart(good, stored, splits, permit) if splits is not None else {}
    # A basis that many bars show is no isolated error, and the stored bars beside it are no neighbours to compare with.
    rebased = [*apart, *(name for name, shift in seen.shifts.items() if shift.same > RUN)]
    mine = pl.col("symbol").is_in(rebased)
    waiting = read_suspects(space, good, margin=NEAR)
    usual = sift(good.filter(~mine) if rebased else good, stored=stored.filter(~mine), waiting=waiting.filter(~mine))
    others = sift(good.filter(mine), stored=stored.clear(), waiting=waiting.clear())
    sifted = Sifted(
        bars=pl.concat([usual.bars, others.bars]).sort("symbol", "ts") if rebased else usual.bars,
        rejects=pl.concat([usual.rejects, others.rejects]),
        confirmed=usual.confirmed,
        withdrawn=usual.withdrawn,
    )
    if sifted.bars.height < good.height:
        compared = compare(sifted.bars, stored)
        seen = measure(_common(compared))
    shifts: Mapping[str, Shift] = seen.shifts
    plans = {name: plan(shift, splits=splits, permit=permit) for name, shift in shifts.items()}
    return Appraisal(stored, sifted, compared, {**apart, **plans}, seen.strange, seen.doubtful)


def _stored(good: pl.DataFrame, space: Workspace, known: Collection[str]) -> pl.DataFrame:
    """Stored bars around `good`; of symbols with only a few within `CONTEXT`, also the nearest on each side of those.

    A few alone may be the very ones in doubt: with no other bar to compare with, a second look would believe them.
    """
    around = read_around(space, good, margin=CONTEXT)
    enough = around.group_by("symbol").len().filter(pl.col("len") > RUN).get_column("symbol")
    alone = {*good["symbol"].unique()} & {*known} - {*enough}
    if not alone:
        return around
    rows = pl.concat([good.select("symbol", "ts"), around.select("symbol", "ts")])
    spans = rows.filter(pl.col("symbol").is_in(list(alone))).group_by("symbol")
    return pl.concat([around, read_edges(space, spans.agg(low=pl.col("ts").min(), high=pl.col("ts").max()))])


def _common(compared: pl.DataFrame) -> pl.DataFrame:
    return compared.filter(pl.col("_close").is_not_null())


def _apart(good: pl.DataFrame, stored: pl.DataFrame, splits: pl.DataFrame, permit: Permit) -> dict[str, Rescale | str]:
    """Plans for symbols of which the source tells splits and whose bars all come after those stored."""
    plans: dict[str, Rescale | str] = {}
    for name in splits["symbol"].unique().sort():
        new, old = (frame.filter(pl.col("symbol") == name).sort("ts") for frame in (good, stored))
        if new.is_empty() or old.is_empty() or old["ts"][-1] >= new["ts"][0]:
            continue
        last, first = (old["ts"][-1], old["close"][-1]), (new["ts"][0], new["close"][0])
        found = plan_apart(name, last=last, first=first, splits=splits, permit=permit)
        if found is not None:
            plans[name] = found
    return plans
