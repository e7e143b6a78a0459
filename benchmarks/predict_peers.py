"""In: how many symbols. Out: how long we and each peer take from features to the newest prediction of every symbol."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from statistics import median
from typing import Final

import numpy as np
import polars as pl

from benchmarks.peers import python_of
from klinepred.calendar import Clock, grid
from klinepred.dataset.make import make_dataset
from klinepred.features.build import F50, FeatureFrame
from klinepred.model.bundle import ModelBundle
from klinepred.model.forward import forward_rows
from klinepred.prediction import reach_of

WINDOW: Final = 78
"""Bars that peers get. Ours has as many as `klinepred predict` reads: the history of its unit of volatility, too."""
FIRST, LAST = datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC)

_BEGIN = """
import json, logging, os, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, pandas as pd, torch
logging.disable(logging.ERROR)
torch.set_num_threads(os.cpu_count())
says = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
symbols, window, rounds = map(int, sys.argv[1:4])
names = [f"f{spot:02d}" for spot in range(50)]
x = np.random.default_rng(0).normal(size=(symbols, window, 50)).astype(np.float32)

def measure(predict):
    taken = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        with torch.no_grad():
            answer = predict()
        taken.append(time.perf_counter() - begin)
        assert len(answer) == symbols, len(answer)
    says.write(json.dumps(taken[1:]) + "\\n")
"""
SCRIPTS: Final[Mapping[str, str]] = {
    "pyqlib": _BEGIN
    + """
from qlib.contrib.model.pytorch_lstm_ts import LSTM
from qlib.data.dataset import TSDatasetH
from qlib.data.dataset.handler import DataHandlerLP
from qlib.data.dataset.loader import StaticDataLoader

stamps = pd.date_range("2026-05-01 13:30", periods=window, freq="5min")
index = pd.MultiIndex.from_product([[f"S{n:04d}" for n in range(symbols)], stamps], names=["instrument", "datetime"])
columns = pd.MultiIndex.from_tuples([("feature", name) for name in names] + [("label", "y")])
values = np.concatenate([x.reshape(-1, 50), np.zeros((symbols * window, 1), np.float32)], axis=1)
frame = pd.DataFrame(values, index=index, columns=columns).swaplevel().sort_index()
model = LSTM(d_feat=50, hidden_size=256, num_layers=3, n_jobs=0, GPU=-1, seed=7)
model.fitted = True

def predict():
    handler = DataHandlerLP(data_loader=StaticDataLoader(frame))
    dataset = TSDatasetH(handler=handler, segments={"test": (stamps[-1], stamps[-1])}, step_len=window)
    return model.predict(dataset)

measure(predict)
""",
    "neuralforecast": _BEGIN
    + """
from neuralforecast.losses.pytorch import MSE
from neuralforecast.models import LSTM
from neuralforecast.tsdataset import TimeSeriesDataset

model = LSTM(
    h=1, input_size=window, hist_exog_list=names, exclude_insample_y=True, encoder_hidden_size=256,
    encoder_n_layers=3, loss=MSE(), scaler_type="identity", max_steps=1, random_seed=7, accelerator="cpu",
    logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
rows = symbols * window
temporal = np.column_stack([np.zeros(rows), x.reshape(-1, 50), np.ones(rows)]).astype(np.float32)
starts = np.arange(0, rows + 1, window)

def predict():
    dataset = TimeSeriesDataset(temporal, pd.Index(["y", *names, "available_mask"]), starts, y_idx=0)
    return model.predict(dataset)

measure(predict)
""",
}


def peers(bundle: ModelBundle, *, rounds: int) -> dict[str, float]:
    """Seconds from features in memory to the newest prediction of each symbol of the bundle's universe."""
    mine = _ours(bundle, rounds=rounds)
    print(f"from features to predictions, {len(bundle.universe)} symbols: klinepred {mine:.2f} s")
    found = {"forward_s": mine}
    for name, script in SCRIPTS.items():
        python = python_of(name)
        if python is None:
            print(f"{name}: skipped, no environment (python -m benchmarks.peers {name})")
            continue
        words = [str(python), "-c", script, *map(str, (len(bundle.universe), WINDOW, rounds))]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{name}: failed: {(done.stderr.strip().splitlines() or ['without a word'])[-1][:200]}")
            continue
        taken = median(json.loads(done.stdout.splitlines()[-1]))
        print(f"{name}: {taken:.2f} s, {taken / mine:.1f} times as long")
        found |= {f"forward_{name}_s": taken, f"vs_{name}": taken / mine}
    return found


def _ours(bundle: ModelBundle, *, rounds: int) -> float:
    """The same of klinepred: rows to sequences, each symbol's running session read with its burn-in."""
    bars = reach_of(bundle, F50, day=WINDOW)
    stamps = grid(Clock("XNYS"), FIRST, LAST).get_column("ts").tail(bars)
    count = len(bundle.universe)
    chance = np.random.default_rng(0)
    keys = pl.DataFrame({"symbol": np.repeat(list(bundle.universe), bars), "ts": pl.concat([stamps] * count)})
    close = 100.0 * np.exp(chance.normal(0.0, 1e-3, (count, bars)).cumsum(axis=1)).ravel()
    values = chance.normal(size=(count * bars, len(F50.names))).astype(np.float32)
    frame = keys.with_columns(close=pl.Series(close)).hstack(pl.DataFrame(values, schema=list(F50.names)))
    table = FeatureFrame(frame, F50, bundle.universe, bundle.calendars)
    taken = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        data = make_dataset(table, bundle.dataset, scaler=bundle.scaler, split=bundle.split, need_rows=False)
        last_N = data.rows.select(pl.col("ts") == stamps[-1]).to_series().to_numpy()
        pred_N = forward_rows(bundle.network, data.x_NF, data.sequences.covering(last_N))
        taken.append(time.perf_counter() - begin)
        assert np.isfinite(pred_N[last_N]).sum() == count  # noqa: S101
    return median(taken[1:])
