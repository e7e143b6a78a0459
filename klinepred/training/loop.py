"""In: a dataset, settings of the network and of the loop. Out: the trained bundle; on the way checkpoints, a record."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch

from klinepred.dataset.make import Dataset
from klinepred.model.bundle import ModelBundle
from klinepred.model.lstm import build_network, parameter_count
from klinepred.settings import ModelSettings, Pipeline, TrainSettings
from klinepred.settings.network import check_network
from klinepred.training.checkpoint import check_fits, load_checkpoint, save_checkpoint
from klinepred.training.cpu import cpu_path
from klinepred.training.data_note import record_data
from klinepred.training.ensemble import train_ensemble
from klinepred.training.epochs import learn
from klinepred.training.heap import kept_heap
from klinepred.training.outcome import UNCERTIFIED, hand_over, make_bundle
from klinepred.training.outline import outline
from klinepred.training.precision import cards, device_name
from klinepred.training.progress import NoProgress, Progress
from klinepred.training.ranks import job, ranks
from klinepred.training.room import room_on
from klinepred.training.rows import TrainRows
from klinepred.training.runs import TEST_AFTER
from klinepred.training.saver import Saver
from klinepred.training.session import Session
from klinepred.training.signals import StopRequest, TrainingStopped
from klinepred.training.state import make_state, precision_of, restore, snapshot
from klinepred.training.tracker import NoTracker, RunStatus, Tracker
from klinepred.training.warm import KEY, SCALER, WarmStart, begin_from, run_params

log = logging.getLogger("klinepred.training")


def train(
    data: Dataset,
    model: ModelSettings,
    train: TrainSettings,
    *,
    tracker: Tracker | None = None,
    progress: Progress | None = None,
    resume: Path | None = None,
    checkpoint: Path | None = None,
    pipeline: Pipeline | None = None,
    shelve: Callable[[ModelBundle], None] | None = None,
    init_from: ModelBundle | None = None,
) -> ModelBundle:
    """Train one network, or an ensemble of `train.ensemble`. Parameters and errors as for `train_one`."""
    check_network(model, data.settings, train)
    tracker, progress = tracker or NoTracker(), progress or NoProgress()
    make = partial(train_ensemble, train_one=train_one) if train.ensemble > 1 else train_one
    return make(
        data,
        model,
        train,
        tracker=tracker,
        progress=progress,
        resume=resume,
        checkpoint=checkpoint,
        pipeline=pipeline,
        shelve=shelve,
        start=begin_from(init_from, data=data, model=model, train=train, resume=resume),
    )


def train_one(
    data: Dataset,
    model: ModelSettings,
    train: TrainSettings,
    *,
    tracker: Tracker,
    progress: Progress,
    resume: Path | None,
    checkpoint: Path | None,
    pipeline: Pipeline | None,
    shelve: Callable[[ModelBundle], None] | None,
    start: WarmStart | None,
) -> ModelBundle:
    """Train a network; the weights of the best epoch by validation loss go into the bundle.

    Among several processes (`klinepred.training.ranks`) each trains on its part of every batch, `train.batch` sequences
    of it; only the first records and saves, and all return the same network.

    Nothing is audited here: run and bundle say so. `klinepred.pipeline.train_model` audits first, and refuses.

    The same seed gives the same numbers, bit for bit on the CPU; torch's random state is afterwards as it was before.

    Parameters
    ----------
    tracker
        Who records the run; it is closed FINISHED, KILLED (a signal) or FAILED (any error).
    progress
        Who shows it.
    resume
        A checkpoint to continue from: the result equals that of a run never interrupted, bit for bit on the CPU.
    checkpoint
        Where to save after every epoch, every `train.save_minutes` and on a signal; default: the tracker's place, else
        `resume`.
    pipeline
        What the settings belong to, for the record and the bundle; default: the tracker's.
    shelve
        Called with the finished bundle before the run is closed: an error there makes it FAILED.
    start
        Weights to begin from (of `train`: the model `init_from`), with optimiser, schedule and counters afresh.

    Raises
    ------
    TrainingStopped
        SIGINT, SIGTERM or SIGHUP came; the checkpoint is saved.
    TrainingError
        No labelled rows, gradients that stay infinite (see `rescue`), no finite validation loss, or a checkpoint that
        does not fit.
    UsageError
        The device cannot be used, or network, cut and loss do not fit together.
    """
    named = pipeline or tracker.pipeline
    settings = {"dataset": data.settings, "model": model, "train": train}
    run = (named or Pipeline(name="unnamed")).model_copy(update=settings)
    ranked = ranks()
    device = ranked.device(train.device)
    saved = load_checkpoint(resume) if resume else None
    remarks = check_fits(saved, data=data, model=model, train=train, world=ranked.world) if saved else []
    precision = precision_of(train, device, saved=saved)
    with (
        room_on(device),
        StopRequest() as stop,
        ExitStack() as switches,
        torch.random.fork_rng(cards(device)),
        kept_heap(device),
    ):
        switches.enter_context(precision.applied())
        torch.manual_seed(train.seed)
        network = build_network(model, inputs=data.x_NF.shape[1]).to(device)
        if start is not None:
            network.load_state_dict(start.weights[0])
        begun = start.about if start else (saved or {}).get(KEY)
        state = make_state(network, train=train, precision=precision)
        rows = TrainRows(data, device=device, size=train.batch, seed=train.seed, ranks=ranked)
        remarks += restore(state, saved, train=train, device=device) if saved else []
        path = [f"on the CPU: {cpu_path(precision)}"] if device.type == "cpu" else []
        for line in [*precision.remarks, *path]:
            log.info("%s", line)
        for remark in remarks:
            log.warning("%s", remark)
        origin = tracker.start(
            run,
            params={
                **run_params(data, begun),
                "parameters": parameter_count(network),
                "sequences": len(rows.sequences),
                "steps_per_epoch": rows.steps,
                **({} if ranked.alone else {"processes": ranked.world}),
            },
            tags={
                "device": device_name(device),
                "precision": precision.name,
                "precision_reason": precision.reason,
                **({"cpu_path": cpu_path(precision)} if device.type == "cpu" else {}),
                TEST_AFTER: data.split.calibration_end.isoformat(),
                **({} if saved else {"leak_certificate": UNCERTIFIED}),  # a run that goes on keeps its word
            },
            resume=saved["run_id"] if saved else None,
        )
        status: RunStatus = "FAILED"
        try:
            origin = ranked.told(origin)
            origin = {**origin, KEY: begun} if begun else origin
            place = (checkpoint or tracker.checkpoint or resume) if ranked.first else None
            fixed = {
                "outline": outline(data).to_dict(),
                SCALER: data.scaler.to_dict(),
                "world": ranked.world,
                "job": job(),
            }
            fingerprint = record_data(data, tracker)
            ranked.same("data set", fingerprint)
            shared = ranked.spread(network, device)

            def save() -> None:
                if place is not None:
                    tracker.settle()  # a checkpoint is never ahead of the record that it goes on with
                    table = snapshot(state, device=device) | fixed
                    save_checkpoint(place, table, data=fingerprint, run=run, origin=origin)

            saver = Saver(save, minutes=train.save_minutes)
            learn(
                Session(
                    data, rows, state, train, device, tracker, progress, stop, switches, place, saver, ranked, shared
                )
            )
            own = run if named else None
            bundle = make_bundle(data, state, run=own, model=model, train=train, device=device, origin=origin)
            hand_over(bundle, tracker)
            if shelve is not None:
                shelve(bundle)
            status = "FINISHED"
        except (TrainingStopped, KeyboardInterrupt):
            status = "KILLED"
            raise
        finally:
            progress.end()
            tracker.end(status)
    return bundle
