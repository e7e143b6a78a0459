"""In: a made market as CSV and Parquet. Out: ingest against plain read + write, memory, a day's increment."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl

from klinepred.bars import tables
from klinepred.bars.store import keep_symbols
from klinepred.calendar import Clock, grid
from klinepred.paths import Workspace
from klinepred.schema import BAR_SCHEMA

CLOCK = Clock("XNYS")
LAST = date(2026, 6, 30)
NOW = "2026-07-02T00:00:00Z"
CHILD = """
import json, resource, sys, time
from pathlib import Path
import polars as pl, deltalake
kind, path, out = sys.argv[1:4]
if kind == "ours":
    from datetime import datetime
    from klinepred.bars.ingest import ingest
    from klinepred.paths import Workspace
    from klinepred.settings import DataSettings
    data = DataSettings(source="files", paths=(path,))
    begin = time.perf_counter()
    report = ingest(data, Workspace(out), now=datetime.fromisoformat(sys.argv[4]))
    seconds = time.perf_counter() - begin
    rows = sum(row.new for row in report.symbols)
else:
    begin = time.perf_counter()
    frame = pl.read_csv(path, try_parse_dates=True) if path.endswith(".csv") else pl.read_parquet(path)
    frame.write_delta(out)
    seconds = time.perf_counter() - begin
    rows = frame.height
try:  # ru_maxrss counts what the parent held when it started this process
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 2**20
except (OSError, IndexError):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps({"s": seconds, "peak_gib": peak, "rows": rows}))
"""


def market(symbols: int, *, days: int, end: date = LAST) -> pl.DataFrame:
    """A random walk of `symbols` on every bar of the last `days` sessions up to `end`; cents, sorted."""
    stop = datetime(end.year, end.month, end.day, tzinfo=UTC) + timedelta(days=1)
    stamps = grid(CLOCK, stop - timedelta(days=2 * days + 10), stop)
    wanted = stamps.get_column("session").unique().sort().tail(days)
    ts = stamps.filter(pl.col("session").is_in(wanted.implode())).get_column("ts")
    chance = np.random.default_rng(7)
    count = len(ts)
    parts = []
    for number in range(symbols):
        close = np.round(100.0 * np.exp(np.cumsum(chance.normal(0.0, 1e-3, count))), 2) + 1.0
        open_ = np.round(close * (1.0 + chance.normal(0.0, 5e-4, count)), 2)
        parts.append(
            pl.DataFrame(
                {
                    "symbol": pl.repeat(f"S{number:04d}", count, eager=True),
                    "ts": ts,
                    "open": open_,
                    "high": np.maximum(open_, close) + 0.01,
                    "low": np.minimum(open_, close) - 0.01,
                    "close": close,
                    "volume": chance.integers(1, 1_000_000, count).astype(float),
                },
                schema=BAR_SCHEMA,
            )
        )
    return pl.concat(parts)


def run(kind: str, path: Path, out: Path) -> dict[str, float]:
    """One measurement in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, kind, str(path), str(out), NOW], capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def race(path: Path, folder: Path, *, rounds: int) -> dict[str, float]:
    """Ours and plain polars on one file, in turn; medians."""
    ours, plain = [], []
    for number in range(rounds):
        plain.append(run("plain", path, folder / f"plain-{path.suffix[1:]}-{number}"))
        ours.append(run("ours", path, folder / f"ours-{path.suffix[1:]}-{number}"))
    rows = ours[0]["rows"]
    assert all(one["rows"] == plain[0]["rows"] for one in ours), "not every row was stored"  # noqa: S101
    seconds, limit = median(one["s"] for one in ours), median(one["s"] for one in plain)
    peak = max(one["peak_gib"] for one in ours)
    print(
        f"{path.name}: {rows:,.0f} rows: {seconds:.2f} s ({rows / seconds / 1e6:.2f} M rows/s, {peak:.2f} GiB), "
        f"plain read + write {limit:.2f} s: {seconds / limit:.2f} times as long"
    )
    return {"s": seconds, "limit_s": limit, "peak_gib": peak}


def increment(folder: Path, *, years: int) -> tuple[float, int]:
    """Seconds to take one more day of 500 symbols onto `years` of them; and the bars stored before."""
    space = Workspace(folder / "long")
    names = [f"S{number:04d}" for number in range(500)]
    keep_symbols(space, names, clock=CLOCK, source="benchmark")
    whole = market(1, days=252 * years)
    stored = 0
    for (month,), part in whole.with_columns(month=pl.col("ts").dt.strftime("%Y-%m")).group_by(
        "month", maintain_order=True
    ):
        rows = pl.concat([part.with_columns(symbol=pl.lit(name)) for name in names]).filter(
            pl.col("ts").dt.date() < LAST
        )
        if rows.height:
            tables.append(space.data, tables.BARS, rows, note={"klinepred.source": f"benchmark {month}"})
            stored += rows.height
    day = whole.filter(pl.col("ts").dt.date() == LAST)
    path = folder / "day.parquet"
    pl.concat([day.with_columns(symbol=pl.lit(name)) for name in names]).write_parquet(path)
    result = run("ours", path, space.root)
    print(f"one day of 500 symbols ({result['rows']:,.0f} bars) onto {stored:,} bars: {result['s']:.2f} s")
    return result["s"], stored


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within two minutes on two cores")
    parser.add_argument("--data", help="not used: the bars are made")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frame = market(128, days=504)
        frame.write_csv(folder / "bars.csv", datetime_format="%Y-%m-%dT%H:%M:%SZ")
        frame.write_parquet(folder / "bars.parquet")
        csv = race(folder / "bars.csv", folder, rounds=2 if quick else 3)
        parquet = race(folder / "bars.parquet", folder, rounds=2 if quick else 3)
        many = market(256, days=504)
        many.write_parquet(folder / "many.parquet")
        del frame, many
        big = run("ours", folder / "many.parquet", folder / "many")
        print(f"{big['rows']:,.0f} rows from Parquet: {big['s']:.2f} s, {big['peak_gib']:.2f} GiB at most")
        day_s, before = increment(folder, years=1 if quick else 5)
    print(
        json.dumps(
            {
                "csv_vs_limit": round(csv["limit_s"] / csv["s"], 3),
                "parquet_vs_limit": round(parquet["limit_s"] / parquet["s"], 3),
                "csv_times_as_long": round(csv["s"] / csv["limit_s"], 2),
                "parquet_times_as_long": round(parquet["s"] / parquet["limit_s"], 2),
                "peak_gib": round(big["peak_gib"], 2),
                "peak_bars": int(big["rows"]),
                "one_day_500_s": round(day_s, 2),
                "bars_before": before,
            }
        )
    )


if __name__ == "__main__":
    main()
