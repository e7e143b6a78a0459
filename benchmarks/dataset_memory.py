"""In: a number of bars. Out: the memory that a dataset of them and training on it take, over that of imports."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
import torch

from klinepred.calendar import Clock, grid
from klinepred.dataset.make import Dataset, make_dataset
from klinepred.features.build import F50, FeatureFrame
from klinepred.model.lstm import build_network
from klinepred.settings import DatasetSettings, ModelSettings
from klinepred.training.rows import TrainRows

MODES = ("session", "window", "on-disk")
SYMBOL_BARS = 10_000
STEPS = 8


def main() -> None:
    """Measure every mode in a process of its own; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--quick", action="store_true", help="has no effect: it takes seconds")
    parser.add_argument("--data", type=Path, help="has no effect: the bars are drawn at random")
    parser.add_argument("--bars", type=int, default=1_000_000)
    asked = parser.parse_args()
    found = {}
    for mode in MODES:
        code = f"from benchmarks.dataset_memory import measure; measure({asked.bars}, {mode!r})"
        words = [sys.executable, "-c", code]
        answer = subprocess.run(words, capture_output=True, text=True, check=True)
        found[mode] = json.loads(answer.stdout.splitlines()[-1])
        print(mode, found[mode])
    print(json.dumps({"bars": asked.bars, "modes": found}))


def measure(bars: int, mode: str) -> None:
    """Print, in MB over this process's memory after its imports: the table of features, and the peak of all work."""
    torch.set_num_threads(1)
    base = _status("VmRSS")
    table = random_table(bars)
    held = _status("VmRSS") - base
    settings = DatasetSettings.model_validate({"target": "raw", "cut": "window" if mode == "window" else "session"})
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is counted from here
    data = make_dataset(table, settings, on_disk=mode == "on-disk")
    made = _status("VmHWM") - base
    _some_steps(data)
    print(json.dumps({"table_mb": held, "dataset_mb": made, "peak_mb": _status("VmHWM") - base}))


def random_table(bars: int) -> FeatureFrame:
    """Random features of symbols with 10,000 bars each."""
    start = datetime(2025, 1, 1, tzinfo=UTC)
    stamps = grid(Clock("XNYS"), start, start + timedelta(days=220)).get_column("ts").head(SYMBOL_BARS)
    symbols = [f"S{number:04d}" for number in range(bars // SYMBOL_BARS)]
    chance = np.random.default_rng(1)
    count = len(symbols) * SYMBOL_BARS
    walk = np.cumsum(chance.normal(0.0, 1e-3, (len(symbols), SYMBOL_BARS)), axis=1)
    frame = pl.DataFrame({"symbol": np.repeat(symbols, SYMBOL_BARS)}).with_columns(
        ts=pl.concat([stamps] * len(symbols)), close=pl.Series(100.0 * np.exp(walk.ravel()))
    )
    for name in F50.names:
        frame = frame.with_columns(pl.Series(name, chance.standard_normal(count, dtype=np.float32)))
    return FeatureFrame(frame, F50, tuple(symbols), dict.fromkeys(symbols, "XNYS"))


def _some_steps(data: Dataset) -> None:
    """Gather batches and learn from them, a few times."""
    device, settings = torch.device("cpu"), ModelSettings(preset="lstm-small", hidden=16, layers=1, head=8)
    network = build_network(settings, inputs=data.x_NF.shape[1])
    rows = TrainRows(data, device=device, size=64, seed=1)
    for (x_BTF, y_BT, labelled_BT), _ in islice(rows.epoch(0), STEPS):
        loss = ((network(x_BTF)[..., 0] - y_BT)[labelled_BT] ** 2).mean()
        torch.autograd.backward(loss)


def _status(name: str) -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1000
    raise OSError(f"no {name} in /proc/self/status")


if __name__ == "__main__":
    main()
