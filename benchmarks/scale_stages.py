"""In: a stage of the pipeline, a folder. Out: what it took in this process, as JSON; the folder has its results."""

from __future__ import annotations

import json
import logging
import resource
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

import polars as pl

import klinepred as kp
from klinepred.bars.sources.simulate import simulate
from klinepred.calendar import Clock, segments
from klinepred.pipeline import build_dataset, refresh_features
from klinepred.pipeline.judge import predict_bars
from klinepred.settings import DataSettings, Pipeline, SimulateSettings

END: Final = date(2026, 6, 30)
NOW: Final = datetime(2026, 7, 2, tzinfo=UTC)
CLOCK: Final = Clock("XNYS")
FILE_ROWS: Final = 1_000_000
"""Bars of a file, about: so that sizes differ in the number of files, not in what a file costs."""
Found = dict[str, float]


def main() -> None:
    """Do one stage, and tell."""
    stage, root, *more = sys.argv[1:]
    logging.getLogger("klinepred").setLevel(logging.ERROR)
    segments(CLOCK)  # calendars are made once a machine, before the clock starts
    begin = time.process_time()
    with OwnMemory() as own:
        found = STAGES[stage](Path(root), *more)
    used = time.process_time() - begin
    memory = {"peak_gib": peak_gib(), "own_gib": own.gib, "start_gib": STARTED_GIB}
    print(json.dumps({**found, "cpu_s": used, **memory}))


def make(root: Path, symbols: str, start: str, form: str) -> Found:
    """Files of a simulated market, each of whole months, `FILE_ROWS` bars or a month: no more is held in memory."""
    settings = SimulateSettings(symbols=int(symbols), start=date.fromisoformat(start), end=END)
    folder = root / "files"
    folder.mkdir(parents=True)
    rows, begin = 0, time.perf_counter()
    months: list[pl.DataFrame] = []
    for one in simulate(settings, clock=CLOCK):
        months.append(one.frame)
        rows += one.frame.height
        if sum(month.height for month in months) + one.frame.height > FILE_ROWS:
            _write(months, folder, form)
            months = []
    if months:
        _write(months, folder, form)
    size = sum(path.stat().st_size for path in folder.iterdir())
    return {"rows": rows, "s": time.perf_counter() - begin, "bytes": size}


def _write(months: list[pl.DataFrame], folder: Path, form: str) -> None:
    frame = pl.concat(months).sort("symbol", "ts")
    path = folder / f"{frame.item(0, 'ts'):%Y-%m}.{form}"
    if form == "csv":
        frame.write_csv(path, datetime_format="%Y-%m-%dT%H:%M:%SZ")
    else:
        frame.write_parquet(path)


def take_in(root: Path) -> Found:
    """Ingest of those files."""
    data = DataSettings(source="files", paths=(str(root / "files"),))
    begin = time.perf_counter()
    report = kp.ingest(data, kp.Workspace(root), now=NOW)
    seconds = time.perf_counter() - begin
    return {"rows": sum(row.new for row in report.symbols), "s": seconds, "bytes": _size(root / "data" / "bars")}


def features(root: Path) -> Found:
    """The 50 features of all bars into the store's cache."""
    kp.build_features(kp.scan_bars(kp.Workspace(root)).head(2000).collect())  # plugins are loaded before the clock
    begin = time.perf_counter()
    done = refresh_features(pipeline(), kp.Workspace(root))
    seconds = time.perf_counter() - begin
    return {"rows": done.computed, "s": seconds, "bytes": _size(root / "data" / "features")}


def epoch(root: Path) -> Found:
    """The data path of one epoch, without the network: the dataset (targets, scaler, sequences), then each batch."""
    import torch

    from klinepred.training.rows import TrainRows

    run = pipeline()
    begin = time.perf_counter()
    data = build_dataset(run, kp.Workspace(root))
    made = time.perf_counter() - begin
    rows = TrainRows(data, device=torch.device("cpu"), size=run.train.batch, seed=run.train.seed)
    begin, labels, steps = time.perf_counter(), 0, 0
    for (x_BTF, _, _), count in rows.epoch(0):
        labels, steps = labels + count, steps + x_BTF.shape[0] * x_BTF.shape[1]
    read = time.perf_counter() - begin
    return {"rows": data.x_NF.shape[0], "s": made + read, "epoch_s": read, "labels": labels, "steps": steps}


def predict(root: Path) -> Found:
    """The next bar of every symbol, by a network of random weights of the default size."""
    from benchmarks.predict_model import shelve_model

    space, run = kp.Workspace(root), pipeline()
    names = tuple(kp.scan_bars(space).select(pl.col("symbol").unique().sort()).collect().to_series())
    bundle = shelve_model(space, symbols=names, preset="lstm-3x256")
    begin = time.perf_counter()
    answer = predict_bars(bundle, space, run, now=NOW)
    seconds = time.perf_counter() - begin
    assert answer.rows.height == len(names)  # noqa: S101
    return {"rows": answer.rows.height, "s": seconds}


def pipeline() -> Pipeline:
    """The settings of all stages: the demo's, on what is stored."""
    return kp.load_pipeline("demo")


def peak_gib() -> float:
    """Highest memory of this process so far; ru_maxrss counts what the parent held when it started this one."""
    try:
        return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 2**20
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class OwnMemory:
    """Looks, ten times a second, at the memory that is this process's own: pages of mapped files are left out, which
    the system takes back as soon as others need the room.
    """

    def __init__(self) -> None:
        self.gib = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> OwnMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            try:
                text = Path("/proc/self/status").read_text()
                self.gib = max(self.gib, int(text.split("RssAnon:")[1].split()[0]) / 2**20)
            except (OSError, IndexError):
                return


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


STAGES: Final[dict[str, Callable[..., Found]]] = {
    "make": make,
    "ingest": take_in,
    "features": features,
    "epoch": epoch,
    "predict": predict,
}
STARTED_GIB: Final = peak_gib()
"""What the process holds before any work: the libraries."""


if __name__ == "__main__":
    main()
