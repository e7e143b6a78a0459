"""In: stages, evidence. Out: what is wrong with each feature: futures it knows, pasts it keeps, strangers."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from klinepred.audit.columns import TOLERANCE, bit_faults, distances, same_rows, say, spread_of
from klinepred.audit.depth import Depth
from klinepred.audit.futures import FUTURES, choose_cuts, strangers
from klinepred.audit.islands import islands
from klinepred.audit.stages import Evidence, Stages
from klinepred.calendar import place
from klinepred.features.spec import Feature
from klinepred.headway import stepwise

ROWS = "rows"
"""The name under which faults of the rows themselves are kept."""


@dataclass
class Findings:
    """What was found out about each feature so far; only grows.

    Attributes
    ----------
    faults
        By feature (or `ROWS`), in words, at most one of each sort.
    compared
        Recomputations that every feature went through, by sort.
    apart
        By feature, the largest relative distance between recomputed from its lookback and from the whole history.
    """

    faults: dict[str, dict[str, str]] = field(default_factory=dict)
    compared: dict[str, int] = field(default_factory=dict)
    apart: dict[str, float] = field(default_factory=dict)

    def add(self, sort: str, faults: dict[str, str]) -> None:
        """Keep the first fault of a sort for each name."""
        self.compared[sort] = self.compared.get(sort, 0) + 1
        for name, text in faults.items():
            self.faults.setdefault(name, {}).setdefault(sort, f"{sort}: {text}")

    def lines(self, name: str) -> list[str]:
        """The faults of one name."""
        return list(self.faults.get(name, {}).values())


def examine_features(stages: Stages, evidence: Evidence, *, depth: Depth) -> Findings:
    """Recompute every feature on other futures, shorter pasts and beside strangers.

    Rows up to a moment must be bit-identical whatever comes after it, in Float64 and in Float32, and whichever
    symbols are there that the universe does not name. From its lookback on, a feature recomputed from a later start
    agrees with the whole history within `TOLERANCE`.
    """
    found = Findings()
    for bars in windows(evidence, rows=depth.rows):
        whole = stages.features(bars, evidence.universe, pl.Float64())
        _futures(stages, evidence, bars, whole, found, depth=depth)
        _pasts(stages, evidence, bars, whole, found, starts=depth.starts)
        _islands(stages, evidence, bars, whole, found, effort=depth.islands)
        _strangers(stages, evidence, bars, whole, found)
    return found


def windows(evidence: Evidence, *, rows: int) -> list[pl.DataFrame]:
    """All bars, or where they are many: the oldest and the newest sessions of some symbols, `rows` together."""
    bars = evidence.bars
    if bars.height <= rows:
        return [bars]
    placed = place(bars)
    days = placed.get_column("session").unique().sort()
    needed = evidence.features.lookback_sessions + 12
    per_day = placed.height / len(days)
    symbols = bars.get_column("symbol").unique().sort()
    spans = [days] if len(days) <= 2 * needed else [days[:needed], days[-needed:]]
    share = rows / (per_day * sum(len(span) for span in spans))
    count = max(min(len(symbols), 6), min(len(symbols), int(share * len(symbols))))
    chosen = [symbols[round(at * (len(symbols) - 1) / max(1, count - 1))] for at in range(count)]
    if count == len(symbols) and share > 1.0:  # room for longer windows
        more = int(len(spans[0]) * share)
        spans = [days] if 2 * more >= len(days) else [days[:more], days[-more:]]
    own = placed.filter(pl.col("symbol").is_in(chosen))
    kept = [own.filter(pl.col("session").is_in(span.implode())).select(bars.columns) for span in spans]
    return [part for part in kept if part.height]


def _futures(
    stages: Stages, evidence: Evidence, bars: pl.DataFrame, whole: pl.DataFrame, found: Findings, *, depth: Depth
) -> None:
    names = evidence.features.names
    single = stages.features(bars, evidence.universe, pl.Float32())
    cuts = choose_cuts(bars, most=depth.cuts)
    for number, cut in enumerate(stepwise(cuts, "moments after which the future is changed")):
        past, now = pl.col("ts") <= cut.ts, bars.get_column("ts") > cut.ts
        known = whole.filter(past)
        for future, make in list(FUTURES.items())[: depth.futures]:
            other = stages.features(make(bars, now), evidence.universe, pl.Float64()).filter(past)
            found.add(f"future {future}", _compare(known, other, names, f"after {cut}"))
        if number < 2:
            other = stages.features(bars.filter(~now), evidence.universe, pl.Float32())
            found.add("future cut off, Float32", _compare(single.filter(past), other, names, f"after {cut}"))


def _compare(known: pl.DataFrame, other: pl.DataFrame, names: tuple[str, ...], where: str) -> dict[str, str]:
    if not same_rows(known, other):
        return {ROWS: f"{known.height} rows became {other.height}, or others, {where}"}
    return {name: f"{text}, {where}" for name, text in bit_faults(known, other, names).items()}


def _pasts(
    stages: Stages, evidence: Evidence, bars: pl.DataFrame, whole: pl.DataFrame, found: Findings, *, starts: int
) -> None:
    """Begin later, and compare every feature from its own lookback on."""
    session = place(bars).get_column("session")
    days = session.unique().sort()
    spreads = {name: spread_of(whole.get_column(name)) for name in evidence.features.names}
    for number in stepwise(range(min(starts, len(days) - 1)), "later starts of history"):
        first = days[1 + 2 * number]
        rest = bars.filter(session >= first)
        part = stages.features(rest, evidence.universe, pl.Float64())
        full = whole.filter(session >= first)
        if not same_rows(full, part):
            found.add("later start", {ROWS: f"other rows from {first} on"})
            continue
        seen = place(rest).select(
            bars=pl.int_range(1, pl.len() + 1).over("symbol"), sessions=pl.col("session").rle_id().over("symbol")
        )
        faults = {}
        for feature in evidence.features.features:
            text = _forgets(feature, full, part, seen, spread=spreads[feature.name], found=found)
            if text:
                faults[feature.name] = f"{text}, history from {first}"
        found.add("later start", faults)


def _forgets(
    feature: Feature, full: pl.DataFrame, part: pl.DataFrame, seen: pl.DataFrame, *, spread: float, found: Findings
) -> str:
    ready_N = ((seen["bars"] >= feature.lookback_bars) & (seen["sessions"] >= feature.lookback_sessions)).to_numpy()
    if not ready_N.any():
        return ""
    far_N = distances(full.get_column(feature.name), part.get_column(feature.name), spread=spread)
    far_N[~ready_N] = 0.0
    worst = int(far_N.argmax())
    found.apart[feature.name] = max(found.apart.get(feature.name, 0.0), float(far_N[worst]))
    return "" if far_N[worst] <= TOLERANCE else say(full, part, feature.name, worst)


def _islands(
    stages: Stages, evidence: Evidence, bars: pl.DataFrame, whole: pl.DataFrame, found: Findings, *, effort: float
) -> None:
    """Change short stretches everywhere, and compare each feature where its lookback lies between two of them."""
    own = tuple(one for one in evidence.features.features if one.family != "cross")  # those read all symbols at once
    spreads = {one.name: spread_of(whole.get_column(one.name)) for one in own}
    for some in stepwise(islands(bars, own, effort=effort), "stretches changed all over"):
        part = stages.features(some.bars, evidence.universe, pl.Float64())
        if not same_rows(whole, part):
            found.add("islands", {ROWS: "other rows where prices and volumes are changed"})
            continue
        faults = {}
        for feature in own:
            ready_N = some.ready(feature)
            if not ready_N.any():
                continue
            far_N = distances(
                whole.get_column(feature.name), part.get_column(feature.name), spread=spreads[feature.name]
            )
            far_N[~ready_N] = 0.0
            worst = int(far_N.argmax())
            if far_N[worst] > TOLERANCE:
                faults[feature.name] = (
                    f"{say(whole, part, feature.name, worst)}, bars beyond its lookback and after it changed"
                )
        found.add("islands", faults)


def _strangers(stages: Stages, evidence: Evidence, bars: pl.DataFrame, whole: pl.DataFrame, found: Findings) -> None:
    beside = stages.features(strangers(bars), evidence.universe, pl.Float64())
    own = beside.join(whole.select("symbol").unique(), on="symbol", how="semi", maintain_order="left")
    found.add("strangers in the store", _compare(whole, own, evidence.features.names, "beside two more symbols"))


def describe(feature: Feature, found: Findings) -> str:
    """What a feature without a fault went through, in words."""
    futures = sum(count for sort, count in found.compared.items() if sort.startswith("future"))
    text = f"bit-identical on {futures} other futures and beside strangers; "
    reach = f"{feature.lookback_bars} bars" + (
        f" and {feature.lookback_sessions} sessions" if feature.lookback_sessions else ""
    )
    apart = found.apart.get(feature.name)
    return text + (
        f"forgets beyond {reach} (off by {apart:.1e} at most)"
        if apart is not None
        else f"too little history to recompute it from {reach}"
    )
