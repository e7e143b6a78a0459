"""In: a simulated market. Out: the speed of `kp.train`, all included, beside a bare loop over `nn.LSTM`."""

# Shapes: S sessions, B sessions of a batch, T bars, F features.

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import torch

import klinepred as kp
from klinepred.bars.sources.simulate import simulate
from klinepred.dataset.make import Dataset
from klinepred.settings import SimulateSettings
from klinepred.training.tracker import Metric, RunStatus


class Recording(kp.MlflowTracker):
    """The real tracker, which also keeps the shares that the loop measures of itself, and its own time.

    Attributes
    ----------
    spent, once
        Seconds spent on numbers of steps and epochs; on opening and closing the run.
    """

    def __init__(self, space: kp.Workspace, run: kp.Pipeline) -> None:
        super().__init__(space, run)
        self.seen: dict[str, float] = {}
        self.spent = self.once = 0.0

    def start(
        self,
        pipeline: kp.Pipeline | None,
        *,
        params: Mapping[str, str | float],
        tags: Mapping[str, str],
        resume: str | None,
    ) -> dict[str, Any]:
        """As the real one, timed."""
        begin = time.perf_counter()
        origin = super().start(pipeline, params=params, tags=tags, resume=resume)
        self.once += time.perf_counter() - begin
        return origin

    def log_metrics(self, metrics: Sequence[Metric]) -> None:
        """As the real one, timed with what it leaves to its thread."""
        begin = time.perf_counter()
        super().log_metrics(metrics)
        self.spent += time.perf_counter() - begin
        self.seen |= {metric.name: metric.value for metric in metrics}

    def write(self, metrics: Sequence[Metric]) -> None:
        """As the real one, timed, in whatever thread."""
        begin = time.perf_counter()
        super().write(metrics)
        self.spent += time.perf_counter() - begin

    def end(self, status: RunStatus) -> None:
        """As the real one, timed."""
        begin = time.perf_counter()
        super().end(status)
        self.once += time.perf_counter() - begin


@dataclass(frozen=True)
class Pace:
    """One epoch of `kp.train`: labelled bars and LSTM steps a second, shares of its time, seconds spent once a run."""

    bars_per_s: float
    steps_per_s: float
    loader: float
    tracking: float
    once_s: float


def market(*, symbols: int, end: date) -> Dataset:
    """A dataset of simulated symbols."""
    clock = kp.Clock("XNYS")
    settings = SimulateSettings(symbols=symbols, start=date(2026, 1, 2), end=end)
    bars = pl.concat([delivery.frame for delivery in simulate(settings, clock=clock)]).sort("symbol", "ts")
    table = kp.build_features(kp.check_bars(bars, clock=clock))
    return kp.make_dataset(table, kp.load_pipeline("demo").dataset)


def ours(data: Dataset, run: kp.Pipeline) -> Pace:
    """One epoch as the loop reports it: validation, and opening and closing the run, left out.

    Metrics that the recorder hands over in the middle of a step count twice: the share is an upper bound.
    """
    with tempfile.TemporaryDirectory() as folder:
        tracker = Recording(kp.Workspace(Path(folder)), run)
        kp.train(data, run.model, run.train, tracker=tracker)
    speed = tracker.seen["labelled_bars_per_s"]
    seconds = data.counts()["train"] / speed
    share = tracker.spent / (seconds + tracker.spent) + tracker.seen["recorder_share"]
    return Pace(speed, data.part("train").steps / seconds, tracker.seen["loader_share"], share, tracker.once)


def bare(data: Dataset, run: kp.Pipeline) -> float:
    """LSTM steps a second of a plain loop over one epoch: resident tensors, the same network sizes, batch and AdamW."""
    cut = data.part("train")
    length = int(cut.length_S.max())
    whole = cut.length_S == length
    rows_ST = torch.from_numpy(cut.start_S[whole, None]) + torch.arange(length)
    x_STF, y_ST = torch.from_numpy(data.x_NF)[rows_ST], torch.from_numpy(data.y_N.copy())[rows_ST].nan_to_num()
    torch.manual_seed(run.train.seed)
    model = run.model
    lstm = torch.nn.LSTM(x_STF.shape[2], model.hidden, model.layers, batch_first=True, dropout=model.dropout)
    head = torch.nn.Sequential(
        torch.nn.Linear(model.hidden, model.head),
        torch.nn.GELU(),
        torch.nn.Dropout(model.dropout),
        torch.nn.Linear(model.head, 1),
    )
    weights = [*lstm.parameters(), *head.parameters()]
    optimiser = torch.optim.AdamW(weights, lr=run.train.lr, weight_decay=run.train.weight_decay)
    order = torch.randperm(x_STF.shape[0])
    start = time.perf_counter()
    for pick_B in torch.split(order, run.train.batch):
        optimiser.zero_grad()
        loss = (head(lstm(x_STF[pick_B])[0])[..., 0] - y_ST[pick_B]).square().mean()
        loss.backward()
        optimiser.step()
    return x_STF.shape[0] * length / (time.perf_counter() - start)


def flops_per_bar(run: kp.Pipeline, features: int) -> float:
    """Floating-point operations of forward and backward (three times forward) of one bar, matrix products only."""
    model, inputs, total = run.model, features, 0.0
    for _ in range(model.layers):
        total += 2.0 * 4.0 * model.hidden * (inputs + model.hidden)
        inputs = model.hidden
    return 3.0 * (total + 2.0 * model.hidden * model.head + 2.0 * model.head)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within two minutes on two cores")
    parser.add_argument("--data", help="not used: the market is simulated")
    quick = parser.parse_args().quick
    data = market(symbols=8 if quick else 32, end=date(2026, 4, 30) if quick else date(2026, 6, 30))
    run = kp.load_pipeline("demo", overrides=["train.epochs=1"])
    pairs: list[tuple[Pace, float]] = []
    bare(data, run)  # threads and memory are warm before the clock counts
    for number in range(4 if quick else 6):
        if number % 2:  # who goes first turns, so that a drift of the machine hits both
            pace = ours(data, run)
            pairs.append((pace, bare(data, run)))
        else:
            plain = bare(data, run)
            pairs.append((ours(data, run), plain))
        pace, plain = pairs[-1]
        print(
            f"kp.train {pace.steps_per_s:,.0f} LSTM steps/s, bare loop {plain:,.0f}; loader {pace.loader:.2%},"
            f" MLflow and recorder {pace.tracking:.2%}"
        )
    best = median(plain for _, plain in pairs)
    print(
        json.dumps(
            {
                "vs_bare_lstm": round(median(pace.steps_per_s / plain for pace, plain in pairs), 3),
                "bare_gflops": round(best * flops_per_bar(run, data.x_NF.shape[1]) / 1e9, 1),
                "loader_share": round(median(pace.loader for pace, _ in pairs), 4),
                "tracking_share": round(median(pace.tracking for pace, _ in pairs), 4),
                "tracking_once_s": round(median(pace.once_s for pace, _ in pairs), 2),
                "bars_per_s": round(median(pace.bars_per_s for pace, _ in pairs)),
                "preset": run.model.preset,
                "threads": torch.get_num_threads(),
            }
        )
    )


if __name__ == "__main__":
    main()
