"""In: a simulated market, a network of random weights. Out: prediction cold, warm against its floor, and following."""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl
import torch

from benchmarks.predict_model import shelve_model
from benchmarks.predict_peers import peers
from klinepred.bars.delivery import Delivery
from klinepred.bars.ingest import take_in
from klinepred.bars.sources.simulate import simulate
from klinepred.bars.store import scan_bars, stored_clocks
from klinepred.bars.tally import Tally
from klinepred.calendar import Clock
from klinepred.features.build import F50, build_features
from klinepred.live.carried import Carried
from klinepred.live.feed import fed_by
from klinepred.live.follow import Follower, Plan
from klinepred.live.watch import ReplayWatch
from klinepred.model.bundle import ModelBundle
from klinepred.paths import Workspace
from klinepred.prediction import forecast, longest_day, reach_of
from klinepred.schema import BAR
from klinepred.settings import DataSettings, SimulateSettings

HISTORY = (date(2026, 4, 1), date(2026, 5, 15))
"""Thirty-two sessions: what the newest prediction looks back over, and some."""
LIVE = datetime(2026, 5, 15, 19, 0, tzinfo=UTC)
"""From here on bars come one by one: the last hour of a Friday, then Monday."""
DATA = DataSettings(source="yahoo", symbols=("SIM001",))
PRESET = "lstm-3x256"


def main() -> None:
    """Measure, print, and end with one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and bars: two minutes on two cores")
    parser.add_argument("--data", type=Path, help="folder for the stores (default: a temporary one)")
    parser.add_argument("--symbols", type=int, default=500)
    words = parser.parse_args()
    logging.getLogger("klinepred").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(dir=words.data) as folder:
        found: dict[str, float] = {}
        found |= cold(Path(folder) / "cold", rounds=2 if words.quick else 7)
        space, rows = stored(Path(folder) / "warm", symbols=words.symbols)
        bundle = shelve_model(space, symbols=names(rows), preset=PRESET)
        found |= warm(space, bundle, rounds=1 if words.quick else 5)
        found |= following(space, bundle, rows, bars=30 if words.quick else 90)
        found |= peers(bundle, rounds=1 if words.quick else 3)
        found |= memory(Path(folder) / "memory", bars=300 if words.quick else 10_000)
    print(json.dumps({name: round(value, 4) for name, value in found.items()}))


def market(symbols: int, *, first: date, last: date) -> pl.DataFrame:
    """Bars of the simulated market, sorted by symbol and ts."""
    settings = SimulateSettings(symbols=symbols, start=first, end=last)
    return pl.concat([one.frame for one in simulate(settings, clock=Clock("XNYS"))]).sort("symbol", "ts")


def names(rows: pl.DataFrame) -> tuple[str, ...]:
    """Its symbols, sorted."""
    return tuple(rows.get_column("symbol").unique().sort())


def stored(root: Path, *, symbols: int) -> tuple[Workspace, pl.DataFrame]:
    """A workspace with the bars that had closed by `LIVE`, and those that come after."""
    rows = market(symbols, first=HISTORY[0], last=HISTORY[1] + timedelta(days=3))
    space = Workspace(root)
    put(space, rows.filter(pl.col("ts") + BAR <= LIVE), now=LIVE)
    return space, rows.filter(pl.col("ts") + BAR > LIVE)


def put(space: Workspace, rows: pl.DataFrame, *, now: datetime) -> None:
    """Ingest bars."""
    take_in([Delivery(rows, "made")], DATA, space, now=now, tally=Tally())


def cold(root: Path, *, rounds: int) -> dict[str, float]:
    """`klinepred predict` for 8 symbols, each time in a new process; the first fills the caches of the system."""
    space, _ = stored(root, symbols=8)
    shelve_model(space, symbols=tuple(scan_bars(space).collect()["symbol"].unique().sort()), preset=PRESET)
    words = [sys.executable, "-m", "klinepred", "predict", "-p", "demo", "-w", str(root), "--format", "json"]
    seconds = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        done = subprocess.run([*words, "--now", f"{LIVE:%Y-%m-%dT%H:%M:%SZ}"], capture_output=True, check=True)
        seconds.append(time.perf_counter() - begin)
        assert len(json.loads(done.stdout)) == 8  # noqa: S101
    print(f"cold klinepred predict, 8 symbols, {PRESET}: {median(seconds[1:]):.2f} s ({rounds} rounds)")
    return {"cold_s": median(seconds[1:])}


def warm(space: Workspace, bundle: ModelBundle, *, rounds: int) -> dict[str, float]:
    """`kp.predict` in one process against reading, features and a bare forward pass of as many steps."""
    day = longest_day(bundle.calendars.values())
    reach = reach_of(bundle, F50, day=day)
    steps = bundle.dataset.burn_in + day - 12  # up to `LIVE` an hour of the session is left

    def ours() -> None:
        forecast(bundle, scan_bars(space), as_of=LIVE, now=LIVE)

    def floor() -> None:
        bars = scan_bars(space)
        columns = bars.collect_schema().names()
        frame = bars.group_by("symbol", maintain_order=True).tail(reach).select(columns).collect()
        build_features(frame, F50, universe=bundle.universe)
        with torch.no_grad():
            bundle.network(torch.zeros(len(bundle.universe), steps, len(F50.names)))

    floor()
    seconds: dict[Callable[[], None], list[float]] = {ours: [], floor: []}
    for _ in range(rounds):
        for side, taken in seconds.items():
            begin = time.perf_counter()
            side()
            taken.append(time.perf_counter() - begin)
    mine, least = median(seconds[ours]), median(seconds[floor])
    print(f"warm, {len(bundle.universe)} symbols: {mine:.2f} s, floor {least:.2f} s: {mine / least:.2f} times as long")
    return {"replay_vs_floor": mine / least, "replay_s": mine, "floor_s": least}


@dataclass
class Stopwatch:
    """From the moment a bar is delivered until its predictions are out, milliseconds."""

    begun: float = 0.0
    taken: list[float] = field(default_factory=list)
    rows: int = 0

    def __call__(self, rows: pl.DataFrame, _prices: pl.DataFrame, _version: int) -> None:
        """Predictions are out."""
        self.taken.append((time.perf_counter() - self.begun) * 1e3)
        self.rows = rows.height


def following(space: Workspace, bundle: ModelBundle, rows: pl.DataFrame, *, bars: int) -> dict[str, float]:
    """One new bar of every symbol, store commit included; the night lies between two of them."""
    watch = Stopwatch()
    closes = (rows.get_column("ts").unique().sort() + BAR).to_list()[:bars]
    by_close = {(ts + BAR): part for (ts,), part in rows.group_by("ts", maintain_order=True)}

    def source(moment: datetime) -> Iterator[Delivery]:
        watch.begun = time.perf_counter()
        part = by_close.get(moment)
        yield Delivery(rows.clear() if part is None else part, "made")

    now = timedelta(0)
    plan = Plan(stored_clocks(space), bundle.universe, delay=now, patience=now, until=closes[-1], again=False)
    predictor = Carried(bundle, space, bundle.universe)
    Follower(plan, space, predictor, fed_by(source, DATA, space), ReplayWatch(LIVE), watch).run()
    taken = np.array(watch.taken[1:])  # the first is of the bar that was stored already
    assert len(taken) == len(closes) and watch.rows == len(bundle.universe)  # noqa: PT018, S101
    assert predictor.rebuilt == 1, "a bar was not just one bar more"  # noqa: S101
    half, most = (float(np.percentile(taken, q)) for q in (50, 99))
    print(f"follow, {watch.rows} symbols, {len(taken)} bars: p50 {half:.0f} ms, p99 {most:.0f} ms")
    return {"follow_ms_p50": half, "follow_ms_p99": most, "follow_bars": len(taken)}


def memory(root: Path, *, bars: int) -> dict[str, float]:
    """Growth of the process over many bars, after a tenth of them."""
    words = [sys.executable, "-m", "benchmarks.predict_memory", str(root), str(bars)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ})
    found = dict(json.loads(done.stdout.splitlines()[-1]))
    print(f"memory over {bars} bars: {found['memory_growth_mib']:+.1f} MiB from {found['memory_start_mib']:.0f} MiB")
    return found


if __name__ == "__main__":
    main()
