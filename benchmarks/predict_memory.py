"""In: a folder, a number of bars. Out: by how much a process grows that follows so many."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import psutil

from benchmarks.predict import HISTORY, market, names, put
from benchmarks.predict_model import shelve_model
from klinepred.live.carried import Carried
from klinepred.paths import Workspace
from klinepred.schema import BAR

SYMBOLS = 6


def ended(rows: pl.DataFrame) -> datetime:
    """When the last of some bars had closed."""
    last: datetime = rows["ts"].max()  # type: ignore[assignment]
    return last + BAR


def main() -> None:
    """A session is stored at a time, its bars are taken one by one; what forgets nothing would grow with each."""
    root, bars = Path(sys.argv[1]), int(sys.argv[2])
    logging.getLogger("klinepred").setLevel(logging.ERROR)
    rows = market(SYMBOLS, first=HISTORY[0], last=HISTORY[1] + timedelta(days=10 + 2 * bars // 78))
    space = Workspace(root)
    days = rows.with_columns(day=pl.col("ts").dt.date()).partition_by("day", maintain_order=True)
    for day in days:
        if day["day"][0] <= HISTORY[1]:
            put(space, day.drop("day"), now=ended(day))
    later = [day.drop("day") for day in days if day["day"][0] > HISTORY[1]]
    del rows, days
    bundle = shelve_model(space, symbols=names(later[0]), preset="lstm-small")
    predictor = Carried(bundle, space, bundle.universe)
    process, seen, start = psutil.Process(), 0, 0.0
    predictor.refresh(later[0]["ts"].min())  # type: ignore[arg-type]
    for day in later:
        put(space, day, now=ended(day))
        for ts in day["ts"].unique().sort():
            predictor.refresh(ts + BAR)
            predictor.forecast(ts + BAR)
            seen += 1
            if seen == bars // 10:
                start = process.memory_info().rss / 2**20
            if seen == bars:
                end = process.memory_info().rss / 2**20
                print(json.dumps({"memory_growth_mib": end - start, "memory_start_mib": start, "memory_bars": bars}))
                return


if __name__ == "__main__":
    main()
