"""In: a number. Out: a pipeline without a leak on a simulated market of its own: bars, universe, settings."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
import polars as pl

from klinepred.audit.stages import Evidence
from klinepred.bars.check import check_bars
from klinepred.bars.sources.simulate import simulate
from klinepred.calendar import Clock
from klinepred.features.build import F50
from klinepred.settings import DatasetSettings, SimulateSettings, SplitSettings

CALENDARS = ("XNYS", "24/7", "XHKG", "XNYS", "XLON")
STARTS = (date(2025, 6, 2), date(2025, 10, 20), date(2026, 2, 9))
"""A half day and 4 July; both ends of daylight saving and Thanksgiving; the spring change of clocks."""


def clean_pipeline(number: int) -> Evidence:
    """Calendars, horizons 1 to 12, raw and relative, both cuts, gaps, late members, one symbol, too few for a quorum.

    The same number gives the same pipeline.
    """
    rng = np.random.default_rng(number)
    calendar = CALENDARS[number % len(CALENDARS)]
    symbols = (6, 7, 1, 6, 3)[number // 2 % 5]
    start = STARTS[number % len(STARTS)]
    days = 33 if calendar == "24/7" else 58
    market = SimulateSettings(
        seed=1000 + number,
        symbols=symbols,
        start=start,
        end=start + timedelta(days=days),
        ic=float(rng.choice([0.0, 0.06, 0.2])),
        zero_volume=float(rng.choice([0.0, 0.05])),
        bounce=float(rng.choice([0.0, 0.0005])),
    )
    clock = Clock(calendar)
    bars = pl.concat([delivery.frame for delivery in simulate(market, clock=clock)]).sort("symbol", "ts")
    if number % 3:
        bars = _holes(bars, rng)
    settings: dict[str, Any] = {
        "horizon": 1 + number % 12,
        "target": "relative" if symbols >= 5 and number % 4 else "raw",
        "cut": "window" if number % 2 else "session",
        "window": 30,
        "burn_in": int(rng.choice([0, 12])),
        "steps": "within-session" if number % 7 == 3 else "all",
        "split": SplitSettings(train=0.5, validation=0.25, embargo=number % (2 if calendar == "24/7" else 3)),
    }
    universe = tuple(bars.get_column("symbol").unique().sort())
    return Evidence(
        check_bars(bars, clock=clock).collect(), universe, F50, DatasetSettings(**settings), f"{calendar}, {settings}"
    )


def _holes(bars: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Bars missing at random and in one long run; with several symbols, one that is listed late."""
    keep = rng.random(bars.height) >= 0.01
    at = int(0.6 * bars.height)
    keep[at : at + 40] = False
    names = bars.get_column("symbol").unique().sort()
    kept = bars.filter(pl.Series(keep))
    if len(names) < 6:
        return kept
    late = kept.get_column("ts").min() + timedelta(days=9)  # type: ignore[operator]
    return kept.filter((pl.col("symbol") != names[-1]) | (pl.col("ts") >= late))
