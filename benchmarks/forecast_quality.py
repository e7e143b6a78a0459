"""In: real bars (us101). Out: IC, rank IC and R2 of the LSTM beside ridge and boosting: same rows, features, target."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl

import klinepred as kp
from benchmarks.features import make_bars
from klinepred.dataset.make import Dataset, make_dataset
from klinepred.evaluation.baselines import feature_columns, fit_baselines
from klinepred.evaluation.sample import Sample, take_sample
from klinepred.evaluation.scores import Score, score_all
from klinepred.evaluation.significance import correlation_repeats, correlation_sums, draw_sessions, estimate
from klinepred.model.forward import forward_rows
from klinepred.pipeline.data import build_dataset
from klinepred.settings import Pipeline, SplitSettings

SPLIT = SplitSettings(train_end=date(2025, 11, 2), validation_end=date(2025, 12, 3))
"""The split that every figure about us101 is given for."""
RIVALS = ("ridge", "hgb")
ALL_ROWS = 10_000_000
SCORES = ("rank_ic", "ic", "r2", "ic_clipped", "r2_clipped", "cs_rank_ic")


@dataclass(frozen=True)
class Graded:
    """Scores of one forecast against the raw return within sessions, and the bootstrap repeats of three of them."""

    score: Score
    repeats: dict[str, np.ndarray]


def build(run: Pipeline, data: Path) -> Dataset:
    """us101 (simulated bars where it is absent) as the pipeline's dataset, with the agreed split."""
    table = kp.build_features(make_bars(data).with_columns(pl.col("calendar").cast(pl.Categorical)))
    return make_dataset(table, run.dataset.model_copy(update={"split": SPLIT}))


def train_seed(data: Dataset, run: Pipeline, seed: int, mask_N: np.ndarray) -> np.ndarray:
    """Forecasts [N] of the rows of the mask by one network of one seed."""
    bundle = kp.train(data, run.model, run.train.model_copy(update={"seed": seed, "ensemble": 1}))
    return forward_rows(bundle.network, data.x_NF, data.sequences.covering(mask_N))


def train_seeds(data: Dataset, run: Pipeline, seeds: range, mask_N: np.ndarray) -> tuple[dict[str, np.ndarray], Sample]:
    """Forecasts of the sample's rows by name: each network's, and each seed's as the pipeline answers with it.

    An ensemble of seed s is the mean of the networks of seeds s, s + 1, … as in the product, so that neighbouring seeds
    share networks; each is trained once.
    """
    members = run.train.ensemble
    singles: dict[str, np.ndarray] = {}
    sample = None
    for seed in range(seeds.start, seeds.stop + members - 1):
        begin = time.perf_counter()
        sample = take_sample(data, train_seed(data, run, seed, mask_N), mask_N=mask_N)
        singles[f"network {seed}"] = sample.pred_M
        print(f"network {seed}: {time.perf_counter() - begin:.0f} s", flush=True)
    assert sample is not None, "no seed"  # noqa: S101
    if members == 1:
        return {f"seed {seed}": singles[f"network {seed}"] for seed in seeds}, sample
    means = {
        f"seed {seed}": np.mean([singles[f"network {seed + more}"] for more in range(members)], axis=0)
        for seed in seeds
    }
    return {**singles, **means}, sample


def grade(sample: Sample, forecasts: dict[str, np.ndarray]) -> dict[str, Graded]:
    """Against the raw return, within sessions."""
    inside = sample.of("within-session")
    draws_BS = draw_sessions(len(sample.sessions), repeats=400, seed=7)
    out = {}
    for name, found in score_all(sample, forecasts, draws_BS=draws_BS).items():
        (score,) = (one for one in found.scores if one.target == "raw" and one.steps == "within-session")
        pred_M = forecasts[name][inside]
        out[name] = Graded(score, _repeats(sample, inside, pred_M, draws_BS))
    return out


def _repeats(sample: Sample, inside: np.ndarray, pred_M: np.ndarray, draws_BS: np.ndarray) -> dict[str, np.ndarray]:
    """IC and R2 in each repeat, outcomes clipped at 6 as in the table of the known results."""
    y_M, session_M = np.clip(sample.raw_M[inside], -6.0, 6.0), sample.session_M[inside]
    sessions = draws_BS.shape[1]
    ic_B = correlation_repeats(correlation_sums(pred_M, y_M, session_M, sessions=sessions), draws_BS)
    miss_S = np.bincount(session_M, weights=(y_M - pred_M) ** 2, minlength=sessions)
    power_S = np.bincount(session_M, weights=y_M**2, minlength=sessions)
    return {"ic_clipped": ic_B, "r2_clipped": 1.0 - (draws_BS @ miss_S) / (draws_BS @ power_S)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed; ends within 15 minutes on two cores")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), metavar="DIR")
    parser.add_argument("--workspace", type=Path, metavar="DIR", help="its store and the pipeline's own split instead")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pipeline", default="us-equities-5m")
    parser.add_argument("--part", choices=["validation", "test"], default="test", help="choose settings on validation")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="A.B=C")
    options = parser.parse_args()
    run = kp.load_pipeline(options.pipeline, overrides=options.overrides)
    data = build_dataset(run, kp.Workspace(options.workspace)) if options.workspace else build(run, options.data)
    mask_N = data.mask(options.part)
    begin = time.perf_counter()
    last_return, lags = feature_columns(data.features)
    baselines = fit_baselines(
        data.x_NF,
        data.y_N,
        train_N=data.mask("train"),
        validation_N=data.mask("validation"),
        ask_N=mask_N,
        names=data.features.names,
        last_return=last_return,
        lags=lags,
        label_clip=data.settings.label_clip,
        seed=7,
        tree_rows=ALL_ROWS,
    )
    print(
        f"baselines: {time.perf_counter() - begin:.0f} s, {[one.settings for one in baselines if one.name in RIVALS]}"
    )
    forecasts = {one.name: one.pred_M for one in baselines if one.name in RIVALS}
    seeds = range(7, 7 + (1 if options.quick else options.seeds))
    own, sample = train_seeds(data, run, seeds, mask_N)
    forecasts |= own
    graded = grade(sample, forecasts)
    _report(graded, [f"seed {seed}" for seed in seeds], sample, options.part)


def _report(graded: dict[str, Graded], seeds: list[str], sample: Sample, part: str) -> None:
    rows = graded[seeds[0]].score.rows
    print(f"{part} part, {rows:,} rows, against the raw return within sessions, in units of volatility")
    print(f"{'':16}" + "".join(f"{name:>13}" for name in SCORES))
    for name, one in graded.items():
        print(f"{name:16}" + "".join(f"{getattr(one.score, score):13.5f}" for score in SCORES))
    mean = {score: float(np.mean([getattr(graded[seed].score, score) for seed in seeds])) for score in SCORES}
    sessions = len(sample.sessions)
    for rival in RIVALS:
        for score in ("ic_clipped", "r2_clipped"):
            own_B = np.mean([graded[seed].repeats[score] for seed in seeds], axis=0)
            gap = estimate(
                mean[score] - getattr(graded[rival].score, score),
                own_B - graded[rival].repeats[score],
                sessions=sessions,
            )
            print(f"mean over {len(seeds)} seeds - {rival}: {score} {gap.value:+.5f} ± {gap.se:.5f}")
    keys = {"lstm": mean, **{rival: {s: getattr(graded[rival].score, s) for s in SCORES} for rival in RIVALS}}
    plain = {name: {score: round(value, 6) for score, value in row.items()} for name, row in keys.items()}
    print(json.dumps({**plain, "seeds": len(seeds), "rows": rows, "part": part}))


if __name__ == "__main__":
    main()
