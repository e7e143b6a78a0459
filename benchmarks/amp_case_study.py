"""In: real or simulated bars, a device. Out: FP32 against AMP for the case study: epoch time, memory, loss."""

from __future__ import annotations

import argparse
import gc
import json
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import torch

import klinepred as kp
from klinepred.bars.clean import clean
from klinepred.bars.sources.simulate import simulate
from klinepred.dataset.make import Dataset
from klinepred.features.build import FeatureFrame
from klinepred.model.lstm import parameter_count
from klinepred.schema import BAR_SCHEMA
from klinepred.settings import SimulateSettings
from klinepred.training.precision import Precision, choose_device, device_name, resolve
from klinepred.training.progress import NoProgress
from klinepred.training.rows import TrainRows
from klinepred.trial.grade import few_sequences, grade
from klinepred.trial.lane import make_lane
from klinepred.trial.measured import clean as without_nan
from klinepred.trial.memory import peak_mib
from klinepred.trial.race import Clock, batches, precisions, race, speedup, step_ms

REAL = "us101_2025-05_2026-03_5m.parquet"
CUTS = {
    "lstm-3x256": ("dataset.cut=session",),
    "lstm-50m": ("dataset.cut=window", "dataset.window=78"),
}


@dataclass(frozen=True)
class Outcome:
    """One precision: median step, an epoch at that pace, peak memory, loss after the last step, speed beside fp32."""

    step_ms: float
    epoch_s: float
    peak_mib: float | None
    val_loss: float
    speedup: float
    speedup_low: float
    speedup_high: float
    skipped: int
    fault: str


def features(data: Path | None, run: kp.Pipeline, *, quick: bool) -> FeatureFrame:
    """The 50 features of the case study's symbols (6 of them when quick), or of as many simulated ones."""
    clock = kp.Clock("XNYS")
    if data is not None and (data / REAL).is_file():
        names = run.data.symbols[: 6 if quick else None]
        raw = pl.read_parquet(data / REAL).select(pl.col(name).cast(dtype) for name, dtype in BAR_SCHEMA.items())
        cleaned = clean(
            raw.filter(pl.col("symbol").is_in(list(names))), clock=clock, now=datetime(2027, 1, 1, tzinfo=UTC)
        )
        bars = cleaned.bars
        print(
            f"bars: {REAL}, {bars.get_column('symbol').n_unique()} of the case study's {len(run.data.symbols)} symbols"
        )
    else:
        print("bars: simulated" if data is None else f"bars: simulated, for {data / REAL} is not there")
        end = date(2026, 2, 27) if quick else date(2026, 6, 30)
        market = SimulateSettings(symbols=6 if quick else 30, start=date(2026, 1, 2), end=end)
        frames = [delivery.frame for delivery in simulate(market, clock=clock)]
        bars = pl.concat(frames).sort("symbol", "ts")
    return kp.build_features(kp.check_bars(bars, clock=clock))


def study(data: Dataset, run: kp.Pipeline, *, steps: int, device: torch.device) -> tuple[dict[str, Outcome], int]:
    """Every precision of the device, on the same batches from the same weights; and the number of parameters."""
    model, train = run.model, run.train
    kinds = {name: kind for name, kind in precisions(train, device).items() if name != "fp16" or device.type != "cpu"}
    rows = TrainRows(data, device=device, size=train.batch, seed=train.seed)
    ((first, _),) = batches(rows, steps=1)
    shape = (first[0].shape[0], first[0].shape[1], first[0].shape[2])

    def memory(kind: Precision) -> float | None:
        window = data.settings.cut == "window"
        return peak_mib(model=model, train=train, precision=kind, shape=shape, last_only=window, device=device)

    peaks = {name: memory(kind) for name, kind in kinds.items()}
    lanes = [
        make_lane(name, model=model, train=train, precision=kind, inputs=shape[2], device=device, planned=steps)
        for name, kind in kinds.items()
    ]
    clock = Clock(NoProgress(), lambda _: None, steps=steps * len(lanes), start=time.perf_counter())
    race(lanes, rows, steps=steps, seed=train.seed, clock=clock)
    held = few_sequences(data)
    base, out = lanes[0].record, {}
    for lane in lanes:
        record = lane.record
        out[record.name] = Outcome(
            step_ms(record),
            step_ms(record) * rows.steps / 1000.0,
            peaks[record.name],
            grade(lane.state.network, held, train=train, device=device).loss,
            *speedup(base, record),
            skipped=sum(record.skipped),
            fault=record.fault,
        )
    return out, parameter_count(lanes[0].state.network)


def show(name: str, rows: dict[str, Outcome], *, parameters: int, steps: int, epoch: int) -> None:
    """One block of lines."""
    print(f"\n{name}: {parameters / 1e6:.1f} M parameters; {steps} steps each, scaled to an epoch of {epoch} steps")
    for precision, row in rows.items():
        peak = "not known" if row.peak_mib is None else f"{row.peak_mib:,.0f} MiB"
        print(
            f"  {precision:5} step {row.step_ms:8.1f} ms  epoch {row.epoch_s:8.1f} s  {row.speedup:5.2f} times as fast"
            f" ({row.speedup_low:.2f} to {row.speedup_high:.2f})  peak {peak}  validation loss {row.val_loss:.5f}"
            f"{'  ' + row.fault if row.fault else ''}"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within two minutes on two cores")
    parser.add_argument("--data", type=Path, metavar="DIR", help=f"where {REAL} lies (default: simulate)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1 (default: cuda where it works)")
    parser.add_argument(
        "--steps", type=int, help="steps of each precision (default: 8 quick, 40 on a CPU, 300 on CUDA)"
    )
    parser.add_argument("--batch", type=int, action="append", help="sequences a step; may be repeated (default: 64)")
    options = parser.parse_args()
    device = choose_device(options.device)
    steps = options.steps or (8 if options.quick else 300 if device.type == "cuda" else 40)
    study_of = kp.load_pipeline("amp-case-study")
    table = features(options.data, study_of, quick=options.quick)
    answer: dict[str, Any] = {"device": device_name(device), "amp": "", "steps": steps, "presets": {}}
    keys: dict[str, dict[str, float | None]] = {"speedup": {}, "memory_ratio": {}, "loss_delta": {}}
    for preset, cut in CUTS.items():
        for size in options.batch or [study_of.train.batch]:
            words = [f"model.preset={preset}", f"train.batch={size}", *cut]
            run = kp.load_pipeline("amp-case-study", overrides=words)
            amp = answer["amp"] = resolve(run.train, device).name
            data = kp.make_dataset(table, run.dataset)
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                rows, parameters = study(data, run, steps=steps, device=device)
            name = preset if size == study_of.train.batch else f"{preset}, batch {size}"
            epoch = -(-len(data.part("train")) // size)
            show(name, rows, parameters=parameters, steps=steps, epoch=epoch)
            base, mixed = rows["fp32"], rows[amp]
            known = base.peak_mib and mixed.peak_mib
            keys["speedup"][name] = round(mixed.speedup, 3)
            keys["memory_ratio"][name] = round(mixed.peak_mib / base.peak_mib, 3) if known else None  # type: ignore[operator]
            keys["loss_delta"][name] = round(mixed.val_loss - base.val_loss, 6) + 0.0
            answer["presets"][name] = {"parameters": parameters, **{p: vars(row) for p, row in rows.items()}}
            del data
            gc.collect()
    print("\nsteps hold what training does on a batch; gathering batches, validation and MLflow are not in them")
    print(json.dumps(without_nan({**answer, **keys}), allow_nan=False))


if __name__ == "__main__":
    main()
