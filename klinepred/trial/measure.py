"""In: a dataset, settings of network and training. Out: `Trial`: fp32, fp16 and bf16 measured beside each other."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import torch

from klinepred.dataset.make import Dataset
from klinepred.errors import TrainingError, out_of_memory
from klinepred.model.lstm import parameter_count
from klinepred.settings import ModelSettings, TrainSettings
from klinepred.training.heap import kept_heap
from klinepred.training.precision import Precision, choose_device, device_name
from klinepred.training.progress import Progress
from klinepred.training.rows import TrainRows
from klinepred.trial.grade import Graded, differences, few_sequences, grade
from klinepred.trial.lane import Lane, Record, make_lane
from klinepred.trial.measured import Curve, Measured, Trial, Yardstick
from klinepred.trial.memory import peak_mib
from klinepred.trial.probe import Likeness
from klinepred.trial.race import WARMUP, Clock, batches, last_quarter, late_skipped, precisions, race, speedup, step_ms
from klinepred.trial.watch import Watch, worst

OTHER_ORDER: Final = 1_000_000
"""Number of the epoch whose order the yardstick takes its batches in."""
OTHER: Final = "yardstick"


def run_trial(
    data: Dataset,
    *,
    model: ModelSettings,
    train: TrainSettings,
    steps: int,
    progress: Progress,
    check: Callable[[str], None],
) -> Trial:
    """Train the same weights on the same batches in every precision and take the differences down.

    fp16 on a CPU is only probed (its gradients compared), since it is slow there, unless `train.precision` asks for it.
    torch's random state is afterwards as it was before.

    Parameters
    ----------
    check
        Called with the place after every step; raises if the user wants to stop.

    Raises
    ------
    TrainingError
        No labelled rows, or they and the networks do not fit into the device's memory.
    UsageError
        The device cannot be used.
    """
    device = choose_device(train.device)
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []), kept_heap(device):
            return _run(data, model, train, steps, device, progress, check)
    except (MemoryError, RuntimeError) as error:
        if out_of_memory(error) is None:
            raise
        raise TrainingError(
            f"memory of {device}",
            expected="room for one network in each precision, and a batch",
            got="not enough",
            do="use a smaller --set train.batch, or a smaller preset",
        ) from error


def _run(
    data: Dataset,
    model: ModelSettings,
    train: TrainSettings,
    steps: int,
    device: torch.device,
    progress: Progress,
    check: Callable[[str], None],
) -> Trial:
    kinds = precisions(train, device)
    trained = {n: k for n, k in kinds.items() if n != "fp16" or device.type != "cpu" or train.precision == "fp16"}
    rows = TrainRows(data, device=device, size=train.batch, seed=train.seed)
    ((first, _),) = batches(rows, steps=1)
    shape = (first[0].shape[0], first[0].shape[1], first[0].shape[2])
    window = data.settings.cut == "window"
    memory: dict[str, float | None] = {}
    for name, kind in trained.items():
        memory[name] = peak_mib(model=model, train=train, precision=kind, shape=shape, last_only=window, device=device)
        check(f"while the memory of {name} was measured")

    def start(name: str, kind: Precision) -> Lane:
        return make_lane(name, model=model, train=train, precision=kind, inputs=shape[2], device=device, planned=steps)

    clock = Clock(progress, check, steps=steps * (len(trained) + 1), start=time.perf_counter())
    progress.begin(steps=clock.steps, done=0)
    lanes = [start(name, kind) for name, kind in trained.items()]
    watch = Watch(lanes[0], kinds=kinds, model=model, inputs=shape[2], steps=steps)
    race(lanes, rows, steps=steps, seed=train.seed, clock=clock, watch=watch)
    small = few_sequences(data)
    grades = {lane.record.name: grade(lane.state.network, small, train=train, device=device) for lane in lanes}
    records = {lane.record.name: lane.record for lane in lanes}
    parameters, probes, naive = parameter_count(lanes[0].state.network), watch.probes, watch.naive
    del lanes, watch  # the yardstick needs the room
    other = start(OTHER, kinds["fp32"])
    race([other], rows, steps=steps, seed=train.seed + 1, first=OTHER_ORDER, clock=clock)
    apart, base = grade(other.state.network, small, train=train, device=device), grades["fp32"]
    measured = {}
    for name in kinds:
        seen = worst(probes.get(name, [])) if name != "fp32" else Likeness(1.0, 0.0, 0.0, 1.0)
        measured[name] = (
            _measured(records[name], grades[name], base, seen, memory[name], speedup(records["fp32"], records[name]))
            if name in records
            else Measured(name, 0, cosine=seen.cosine, error=seen.error, flushed=seen.flushed, scale=seen.scale)
        )
    return Trial(
        device=device_name(device),
        parameters=parameters,
        batch=shape,
        rows=int(base.bps_V.size),
        base=measured.pop("fp32"),
        others=tuple(measured.values()),
        yardstick=Yardstick(apart.loss, *differences(apart.bps_V, base.bps_V)),
        naive=naive,
        curves={
            record.name: Curve(tuple(record.losses), tuple(record.scales))
            for record in [*records.values(), other.record]
        },
        seconds={name: tuple(record.seconds[WARMUP:]) for name, record in records.items()},
        probes={name: tuple((at, 1.0 - like.cosine) for at, like in seen) for name, seen in probes.items()},
    )


def _measured(
    record: Record,
    graded: Graded,
    base: Graded,
    seen: Likeness,
    memory: float | None,
    speed: tuple[float, float, float],
) -> Measured:
    diff, p99, flips = differences(graded.bps_V, base.bps_V)
    return Measured(
        record.name,
        steps=len(record.losses),
        skipped=sum(record.skipped),
        late_skipped=late_skipped(record),
        fault=record.fault,
        train_loss=last_quarter(record.losses),
        val_loss=graded.loss,
        diff_bps=diff,
        diff_p99_bps=p99,
        sign_flips=flips,
        step_ms=step_ms(record),
        speedup=speed[0],
        speedup_low=speed[1],
        speedup_high=speed[2],
        peak_mib=memory,
        cosine=seen.cosine,
        error=seen.error,
        flushed=seen.flushed,
        scale=min(record.scales, default=float("nan")),
    )
