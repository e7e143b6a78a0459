"""In: simulated markets with and without a signal. Out: how often the verdict errs, finds it, and reports it right."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from datetime import date

import numpy as np
import polars as pl
import torch

import klinepred as kp
from klinepred.bars.sources.simulate import simulate
from klinepred.dataset.make import Dataset, make_dataset
from klinepred.evaluation.sample import take_sample
from klinepred.evaluation.verdict import judge
from klinepred.features.build import FeatureFrame
from klinepred.metrics import ic
from klinepred.model.bundle import ModelBundle
from klinepred.model.forward import forward_rows
from klinepred.settings import (
    DatasetSettings,
    EvaluateSettings,
    ModelSettings,
    SimulateSettings,
    SplitSettings,
    TrainSettings,
)

CLOCK = kp.Clock("XNYS")
DATA = DatasetSettings(split=SplitSettings(train=0.55, validation=0.15))
MODEL = ModelSettings(hidden=16, layers=1, head=8, dropout=0.0)
TRAIN = TrainSettings(epochs=3, batch=16, lr=5e-3, patience=0, device="cpu")
SHORT = (date(2026, 1, 2), date(2026, 5, 15))
"""Some 90 sessions: 20 to warm up, 39 to train on, 11 to choose and calibrate on, 21 to be tested on."""
LONG = (date(2024, 5, 1), date(2026, 2, 15))
"""Some 430 sessions: twenty times the test part."""
JUDGE = EvaluateSettings(bootstrap=400)


@dataclass(frozen=True)
class Trial:
    """One market: the word, the IC that was reported with its error, and the IC of the same model on a large sample."""

    word: str
    ic: float
    se: float
    detectable: float
    population: float


def market(seed: int, planted: float, span: tuple[date, date]) -> FeatureFrame:
    """Features of a simulated market of six symbols."""
    settings = SimulateSettings(seed=seed, symbols=6, start=span[0], end=span[1], ic=planted)
    frame = pl.concat([delivery.frame for delivery in simulate(settings, clock=CLOCK)]).sort("symbol", "ts")
    return kp.build_features(kp.check_bars(frame, clock=CLOCK))


def forecast(bundle: ModelBundle, data: Dataset, mask_N: np.ndarray) -> np.ndarray:
    """Forecasts [N] of the rows of the mask."""
    return forward_rows(bundle.network, data.x_NF, data.sequences.covering(mask_N))


def learn(table: FeatureFrame, seed: int) -> tuple[ModelBundle, Dataset]:
    """A small network of one market."""
    data = make_dataset(table, DATA)
    return kp.train(data, MODEL, TRAIN.model_copy(update={"seed": seed})), data


def population_ic(bundle: ModelBundle, seed: int, planted: float) -> float:
    """The model's IC on a fresh market of the same law, twenty times the test part."""
    data = make_dataset(market(seed, planted, LONG), DATA, scaler=bundle.scaler, split=bundle.split)
    labelled_N = np.isfinite(data.y_N) & data.sequences.owned(data.y_N.size)
    return ic(forecast(bundle, data, labelled_N)[labelled_N], data.y_N[labelled_N])


def trial(seed: int, planted: float, *, fresh: bool) -> Trial:
    """Train, judge, and with `fresh` measure what the model is truly worth."""
    bundle, data = learn(market(seed, planted, SHORT), seed)
    test_N = data.mask("test")
    found = judge(take_sample(data, forecast(bundle, data, test_N), mask_N=test_N), settings=JUDGE)
    population = population_ic(bundle, seed + 500_000, planted) if fresh else float("nan")
    return Trial(found.verdict, found.ic.value, found.ic.se, found.ic.detectable, population)


def leak(seed: int) -> str:
    """The word for a forecast that has seen a part of the answer: the label, under three times as much noise."""
    data = make_dataset(market(seed, 0.0, SHORT), DATA)
    test_N = data.mask("test")
    chance = np.random.default_rng(seed)
    pred_N = np.nan_to_num(data.y_N) + 3.0 * chance.standard_normal(data.y_N.size)
    return judge(take_sample(data, pred_N.astype(np.float32), mask_N=test_N), settings=JUDGE).verdict


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="40 markets of either kind: about 10 minutes on two cores")
    parser.add_argument("--data", help="not used: the markets are simulated")
    parser.add_argument("--markets", type=int, default=200)
    parser.add_argument("--planted", type=float, default=0.11, help="IC planted in the markets with a signal")
    options = parser.parse_args()
    torch.set_num_threads(2)
    count = 40 if options.quick else options.markets
    begin = time.perf_counter()
    noise = [trial(seed, 0.0, fresh=False) for seed in range(count)]
    words = [one.word for one in noise]
    print(f"noise: { ({word: words.count(word) for word in sorted({*words})}) } in {time.perf_counter() - begin:.0f} s")
    begin = time.perf_counter()
    signal = [trial(1000 + seed, options.planted, fresh=True) for seed in range(count)]
    truth, needed = (float(np.mean([getattr(one, name) for one in signal])) for name in ("population", "detectable"))
    inside = [abs(one.ic - one.population) <= 2.0 * one.se for one in signal]
    power = float(np.mean([one.word == "EDGE" for one in signal]))
    print(
        f"planted {options.planted}: population IC {truth:.4f}, {truth / needed:.2f} times the smallest detectable one "
        f"({needed:.4f}); EDGE in {power:.1%}; reported IC within two errors of it in {np.mean(inside):.1%}; "
        f"{time.perf_counter() - begin:.0f} s"
    )
    leaks = [leak(seed) for seed in range(20)]
    keys = {
        "noise_runs": count,
        "false_edges": words.count("EDGE"),
        "power": power,
        "times_detectable": round(truth / needed, 3),
        "ic_coverage": round(float(np.mean(inside)), 4),
        "leaks_caught": leaks.count("SUSPICIOUSLY GOOD"),
        "leaks_planted": len(leaks),
    }
    print(json.dumps(keys))


if __name__ == "__main__":
    main()
