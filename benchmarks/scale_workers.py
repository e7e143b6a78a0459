"""In: a simulated market. Out: how much faster two workers of one thread are than one, on features and on training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import Final

import klinepred as kp
from klinepred.settings import SimulateSettings
from klinepred.training.tracker import Metric, NoTracker

ONE_THREAD: Final = {
    **dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONWARNINGS": "ignore",
}
BATCH: Final = 64
"""Sequences of a step, of all processes together."""


def two_workers(*, quick: bool) -> dict[str, object]:
    """Ratios of one worker's time to two workers', features and training; the lesser of both is `two_workers`."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        settings = SimulateSettings(symbols=24 if quick else 64, start=date(2025, 1, 2), end=date(2026, 6, 30))
        kp.ingest(kp.load_pipeline("demo").data.model_copy(update={"simulate": settings}), kp.Workspace(root))
        rounds = 1 if quick else 3
        features = [_median(["features", str(root), str(workers)], rounds=rounds) for workers in (1, 2)]
        training = [_median(["train", "8" if quick else "16"], rounds=rounds, processes=number) for number in (1, 2)]
    ratios = {"two_workers_features": features[0] / features[1], "two_workers_train": training[0] / training[1]}
    print(f"\nfeatures by Ray: {features[0]:.2f} s by one worker of one thread, {features[1]:.2f} s by two")
    print(
        f"training by torchrun: {training[0]:.2f} s an epoch by one process of one thread, {training[1]:.2f} s by two"
    )
    found = {name: round(ratio, 2) for name, ratio in ratios.items()}
    return {**found, "two_workers": min(found.values())}


def _median(words: Sequence[str], *, rounds: int, processes: int = 0) -> float:
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes else []
    line = [sys.executable, *start, "-m", "benchmarks.scale_workers", *words]
    seconds = []
    for _ in range(rounds):
        done = subprocess.run(line, env={**os.environ, **ONE_THREAD}, stdout=subprocess.PIPE, text=True, check=True)
        seconds.append(float(json.loads(done.stdout.splitlines()[-1])["s"]))
    return median(seconds)


def features(root: Path, workers: int) -> float:
    """Seconds to build all features on a Ray cluster of `workers` cores that has been started."""
    import shutil

    from klinepred.engine.on_ray import ray_cluster
    from klinepred.pipeline import refresh_features

    space = kp.Workspace(root)
    shutil.rmtree(space.features, ignore_errors=True)
    with ray_cluster(workers=workers) as engine:
        [*engine.map(_awake, [0.5] * workers)]
        begin = time.perf_counter()
        refresh_features(kp.load_pipeline("demo"), space, engine=engine)
        return time.perf_counter() - begin


def _awake(seconds: float) -> float:
    """Have the libraries loaded, and stay until the other workers have begun."""
    import klinepred.features.build  # noqa: F401

    time.sleep(seconds)
    return seconds


class Timed(NoTracker):
    """Keeps the speed of the last epoch."""

    speed = 0.0

    def log_metrics(self, metrics: Sequence[Metric]) -> None:
        """As `klinepred.training.tracker.Tracker`."""
        for metric in metrics:
            if metric.name == "labelled_bars_per_s":
                self.speed = metric.value


def training(symbols: int) -> float | None:
    """Seconds of the second epoch of the default network, in the first process; None in the others."""
    import torch

    from benchmarks.train_throughput import market
    from klinepred.training.ranks import joined

    torch.set_num_threads(1)
    data = market(symbols=symbols, end=date(2026, 3, 31))
    with joined() as ranked:
        batch = BATCH // ranked.world
        run = kp.load_pipeline("demo", overrides=["train.epochs=2", f"train.batch={batch}", 'train.device="cpu"'])
        timed = Timed()
        kp.train(data, run.model, run.train, tracker=timed)
        return data.counts()["train"] / timed.speed if ranked.first else None


def main() -> None:
    """One measurement, as JSON."""
    what, *words = sys.argv[1:]
    seconds = features(Path(words[0]), int(words[1])) if what == "features" else training(int(words[0]))
    if seconds is not None:
        print(json.dumps({"s": seconds}))


if __name__ == "__main__":
    main()
