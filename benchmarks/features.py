"""In: bars, tiled to ten million. Out: values per second of the 50 features, memory; peers on what they share."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import polars as pl

import klinepred as kp
from benchmarks.features_peers import SCRIPTS, race
from klinepred.bars.clean import clean
from klinepred.bars.sources.simulate import simulate
from klinepred.schema import BAR_SCHEMA, VALUES
from klinepred.settings import SimulateSettings

CLOCK = kp.Clock("XNYS")
REAL = "us101_2025-05_2026-03_5m.parquet"
PEER_ROWS = 500_000

OURS = """
import json, resource, sys, tempfile, time
from pathlib import Path
import polars as pl
import klinepred as kp
from klinepred.features.cache import cached_features
from klinepred.features.spec import FeatureSet
mode, path, copies, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
scan = pl.scan_parquet(path).with_columns(pl.col("calendar").cast(pl.Categorical))
if copies > 1:
    scan = pl.concat([scan.with_columns(symbol=pl.format("{}.{}", "symbol", pl.lit(copy))) for copy in range(copies)])
names = tuple(scan.select(pl.col("symbol").unique().sort()).collect().to_series())
rows = scan.select(pl.len()).collect().item()
shared = ("trend__rsi_14", "volatility__atr_14", "trend__adx_14", "trend__cci_20", "volume__mfi_14",
          "trend__macd_hist_12_26_9", "trend__aroon_25", "trend__stochastic_14", "volatility__parkinson_12",
          "volatility__garman_klass_39", "volatility__rogers_satchell_78")
chosen = kp.F50 if mode != "shared" else FeatureSet("shared", tuple(f for f in kp.F50.features if f.name in shared))
kp.build_features(scan.head(2000).collect())  # calendars and plugins are loaded before the clock starts
seconds, again = [], None
for _ in range(rounds):
    if mode == "kept":
        with tempfile.TemporaryDirectory() as folder:
            taken = []
            for _ in range(2):
                begin = time.perf_counter()
                cached_features(scan, chosen, universe=names, folder=Path(folder))
                taken.append(time.perf_counter() - begin)
        seconds.append(taken[0])
        again = taken[1]
    else:
        table = scan.collect()
        begin = time.perf_counter()
        kp.build_features(table, chosen)
        seconds.append(time.perf_counter() - begin)
try:  # ru_maxrss counts what the parent held when it started this process
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 2**20
except (OSError, IndexError):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps({"rows": rows, "s": min(seconds), "again_s": again, "peak_gib": peak, "values": len(chosen.names)}))
"""


def ours(mode: str, path: Path, *, copies: int = 1, rounds: int = 1) -> dict[str, float]:
    """One measurement in a process of its own: `all` and `shared` in memory, `kept` out of core and to disk."""
    line = [sys.executable, "-c", OURS, mode, str(path), str(copies), str(rounds)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    found["bars_per_s"] = found["rows"] / found["s"]
    found["values_per_s"] = found["bars_per_s"] * found["values"]
    print(
        f"{mode}: {found['values']} features of {found['rows']:,} bars in {found['s']:.2f} s: "
        f"{found['bars_per_s']:,.0f} bars/s, {found['peak_gib']:.2f} GiB"
    )
    return found


def make_bars(data: Path) -> pl.DataFrame:
    """us101 where it is at hand, else a simulated market of about its size."""
    if (data / REAL).is_file():
        raw = pl.read_parquet(data / REAL).select(pl.col(name).cast(dtype) for name, dtype in BAR_SCHEMA.items())
        frame = clean(raw, clock=CLOCK, now=datetime(2027, 1, 1, tzinfo=UTC)).bars
    else:
        print(f"{data / REAL} is not there: simulated bars instead")
        settings = SimulateSettings(symbols=100, start=date(2025, 5, 1), end=date(2026, 3, 12))
        frame = pl.concat([delivery.frame for delivery in simulate(settings, clock=CLOCK)]).sort("symbol", "ts")
    return kp.check_bars(frame, clock=CLOCK).collect().with_columns(pl.col("calendar").cast(pl.String))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within two minutes on two cores: no tiling")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), metavar="DIR", help=f"where {REAL} lies")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path, some, array = (Path(name) / file for file in ("bars.parquet", "some.parquet", "some.npy"))
        bars = make_bars(options.data)
        bars.write_parquet(path)
        copies = 1 if options.quick else -(-10_000_000 // bars.height)
        head = bars.head(PEER_ROWS)
        head.write_parquet(some)
        np.save(array, head.select(pl.col("symbol").rle_id().cast(pl.Float64), *VALUES).to_numpy())
        del bars, head
        memory = ours("all", path, rounds=3)
        kept = ours("kept", path, copies=copies)
        print(f"the second time: {kept['again_s']:.2f} s")
        first = ours("all", some, rounds=3)
        shared = ours("shared", some, rounds=3)
        peers = {peer: race(peer, array) for peer in SCRIPTS}
    keys = {"ml4t-engineer": "ml4t", "pandas-ta-classic": "pandas_ta", "pyqlib": "qlib"}
    ratios = {
        f"vs_{keys[peer]}": None if found is None else round(first["values_per_s"] / found["values_per_s"], 2)
        for peer, found in peers.items()
    }
    alike = {
        f"shared_vs_{keys[peer]}": None if found is None else round(shared["values_per_s"] / found["values_per_s"], 2)
        for peer, found in peers.items()
    }
    print(
        json.dumps(
            {
                "bars_per_s": round(memory["bars_per_s"]),
                "values_per_s": round(memory["values_per_s"]),
                **ratios,
                **alike,
                "peak_gib": round(kept["peak_gib"], 2),
                "peak_bars": kept["rows"],
                "kept_bars_per_s": round(kept["bars_per_s"]),
                "again_s": round(kept["again_s"], 2),
            }
        )
    )


if __name__ == "__main__":
    main()
