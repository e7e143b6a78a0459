"""In: simulated bars. Out: how many bars and values per second the 50 features take, and the memory at most."""

from __future__ import annotations

import argparse
import json
import resource
import time
from datetime import date

import polars as pl

import klinepred as kp
from klinepred.bars.sources.simulate import simulate
from klinepred.settings import SimulateSettings


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within two minutes on two cores")
    parser.add_argument("--data", help="not used: the bars are simulated")
    quick = parser.parse_args().quick
    clock = kp.Clock("XNYS")
    settings = SimulateSettings(symbols=50, start=date(2025, 7, 1), end=date(2026, 1, 30 if quick else 31))
    if not quick:
        settings = settings.model_copy(update={"symbols": 200})
    frame = pl.concat([delivery.frame for delivery in simulate(settings, clock=clock)]).sort("symbol", "ts")
    bars = kp.check_bars(frame, clock=clock).collect()
    kp.build_features(bars.head(2000))  # calendars and plugins are loaded before the clock starts
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rates = []
    for _ in range(3):
        start = time.perf_counter()
        table = kp.build_features(bars)
        rates.append(bars.height / (time.perf_counter() - start))
        print(f"{bars.height:,} bars: {rates[-1]:,.0f} bars/s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    best = max(rates)
    print(
        json.dumps(
            {
                "bars": bars.height,
                "bars_per_s": round(best),
                "values_per_s": round(best * len(table.features.names)),
                "peak_gib": round(peak, 2),
                "before_gib": round(before, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
