"""In: simulated markets that go on as they were, and some that do not. Out: how often `drift` calls either drift."""

from __future__ import annotations

import argparse
import json
import time
from datetime import date

import numpy as np
import polars as pl

import klinepred as kp
from klinepred.bars.sources.simulate import simulate
from klinepred.live.psi import compare
from klinepred.settings import SimulateSettings

CLOCK = kp.Clock("XNYS")
NAMES = [feature.name for feature in kp.F50.features if feature.family != "clock"]
SPAN = (date(2026, 1, 2), date(2026, 8, 31))
WARM_UP = 22
STRIDE = 7
"""Sessions from one comparison to the next in the same market."""
Arrays = tuple[np.ndarray, np.ndarray]


def market(seed: int, *, volatility: float = 0.018) -> Arrays:
    """Features [N, F] of eight symbols after the warm-up, and the session of each row."""
    settings = SimulateSettings(seed=seed, symbols=8, start=SPAN[0], end=SPAN[1], volatility=volatility)
    bars = pl.concat([delivery.frame for delivery in simulate(settings, clock=CLOCK)]).sort("symbol", "ts")
    frame = kp.build_features(kp.check_bars(bars, clock=CLOCK)).frame.with_columns(day=pl.col("ts").dt.date())
    frame = frame.filter(pl.col("day").rank("dense") > WARM_UP)
    x_NF = frame.select(pl.col(NAMES).fill_null(0.0)).to_numpy().astype(np.float64)
    return x_NF, frame.get_column("day").rank("dense").cast(pl.Int64).to_numpy() - 1


def cut(data: Arrays, first: int, count: int) -> Arrays:
    """Rows of `count` sessions from `first` on."""
    x_NF, session_N = data
    mask_N = (session_N >= first) & (session_N < first + count)
    return x_NF[mask_N], session_N[mask_N] - first


def drifted(live: Arrays, reference: Arrays) -> list[str]:
    """Names of the columns that are called drifted."""
    shifts = compare(live, reference)
    return [name for name, shift in zip(NAMES, shifts, strict=True) if shift.word == "drifted"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="4 markets: under a minute on two cores")
    parser.add_argument("--data", help="not used: the markets are simulated")
    parser.add_argument("--markets", type=int, default=40)
    options = parser.parse_args()
    begin = time.perf_counter()
    keys: dict[str, object] = {}
    calls: dict[tuple[int, int], list[bool]] = {(10, 40): [], (10, 80): [], (5, 40): [], (5, 80): []}
    doubled, planted = [], []
    for seed in range(4 if options.quick else options.markets):
        calm, wild = market(seed), market(seed, volatility=0.036)
        last = int(calm[1].max()) + 1
        for (length, before), found in calls.items():
            reference = cut(calm, 0, before)
            for first in range(before, last - length + 1, STRIDE):
                found.append(bool(drifted(cut(calm, first, length), reference)))
        reference = cut(calm, 0, 80)
        doubled.append("volatility__realised_78" in drifted(cut(wild, 90, 10), reference))
        x_NF, session_N = cut(calm, 90, 10)
        for column in range(len(NAMES)):
            moved_NF = x_NF.copy()
            moved_NF[:, column] += reference[0][:, column].std()
            planted.append(NAMES[column] in drifted((moved_NF, session_N), reference))
    for (length, before), found in calls.items():
        keys[f"false_{length}_of_{before}"] = round(float(np.mean(found)), 4)
        print(
            f"{length} sessions against {before}: drift called in {sum(found)} of {len(found)} comparisons without any"
        )
    keys |= {
        "comparisons": sum(map(len, calls.values())),
        "doubled_volatility_found": round(float(np.mean(doubled)), 3),
        "one_deviation_found": round(float(np.mean(planted)), 3),
        "columns": len(NAMES),
        "seconds": round(time.perf_counter() - begin),
    }
    print(json.dumps(keys))


if __name__ == "__main__":
    main()
