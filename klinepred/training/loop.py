"""In: a dataset, settings of the network and of the loop. Out: the trained bundle; on the way checkpoints, a record."""

from __future__ import annotations

import logging
import time
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
from klinepred.training.data_note import record_data
from klinepred.training.ensemble import train_ensemble
from klinepred.training.outcome import UNCERTIFIED, hand_over, make_bundle
from klinepred.training.outline import outline
from klinepred.training.pace import Pace
from klinepred.training.precision import cards, choose_device, device_name
from klinepred.training.progress import EpochNews, NoProgress, Progress
from klinepred.training.recorder import FlightRecorder
from klinepred.training.rescue import rescue
from klinepred.training.rows import TrainRows
from klinepred.training.runs import TEST_AFTER
from klinepred.training.saver import Saver
from klinepred.training.schedule import learning_rate
from klinepred.training.session import Session
from klinepred.training.signals import StopRequest, TrainingStopped
from klinepred.training.state import make_state, precision_of, restore, snapshot
from klinepred.training.step import take_step
from klinepred.training.tracker import Metric, NoTracker, RunStatus, Tracker
from klinepred.training.validation import validate
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
    device = choose_device(train.device)
    saved = load_checkpoint(resume) if resume else None
    remarks = check_fits(saved, data=data, model=model, train=train) if saved else []
    precision = precision_of(train, device, saved=saved)
    with StopRequest() as stop, ExitStack() as switches, torch.random.fork_rng(cards(device)):
        switches.enter_context(precision.applied())
        torch.manual_seed(train.seed)
        network = build_network(model, inputs=data.x_NF.shape[1]).to(device)
        if start is not None:
            network.load_state_dict(start.weights[0])
        begun = start.about if start else (saved or {}).get(KEY)
        state = make_state(network, train=train, precision=precision)
        rows = TrainRows(data, device=device, size=train.batch, seed=train.seed)
        remarks += restore(state, saved, train=train, device=device) if saved else []
        for line in precision.remarks:
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
            },
            tags={
                "device": device_name(device),
                "precision": precision.name,
                "precision_reason": precision.reason,
                TEST_AFTER: data.split.calibration_end.isoformat(),
                **({} if saved else {"leak_certificate": UNCERTIFIED}),  # a run that goes on keeps its word
            },
            resume=saved["run_id"] if saved else None,
        )
        origin = {**origin, KEY: begun} if begun else origin
        status: RunStatus = "FAILED"
        try:
            place = checkpoint or tracker.checkpoint or resume
            fixed = {"outline": outline(data).to_dict(), SCALER: data.scaler.to_dict()}
            fingerprint = record_data(data, tracker)

            def save() -> None:
                if place is not None:
                    table = snapshot(state, device=device) | fixed
                    save_checkpoint(place, table, data=fingerprint, run=run, origin=origin)

            saver = Saver(save, minutes=train.save_minutes)
            learn(Session(data, rows, state, train, device, tracker, progress, stop, switches, place, saver))
            own = run if named else None
            bundle = make_bundle(
                data, state, run=own, model=model, seed=train.seed, kind=train.loss, device=device, origin=origin
            )
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


def learn(session: Session) -> None:
    """Go through the epochs that are left, until the last one or until patience is out.

    Raises
    ------
    TrainingStopped
        A stop signal came; the state is saved.
    TrainingError
        Gradients that are not finite and stay so.
    """
    counters, epochs = session.state.counters, session.train.epochs
    if session.over:
        log.warning("nothing is left to train: the run had ended after epoch %d of %d", counters.epoch, epochs)
    session.progress.begin(steps=session.planned, done=counters.tried)
    network = session.state.network
    with FlightRecorder(session.tracker, network, train=session.train, device=session.device) as recorder:
        _epochs(session, recorder)


def _epochs(session: Session, recorder: FlightRecorder) -> None:
    state, train, rows, stop = session.state, session.train, session.rows, session.stop
    network, counters, planned, pace = state.network, state.counters, session.planned, Pace()
    while not session.over:
        network.train()
        recorder.seconds = waited = 0.0
        bars = 0
        start = time.perf_counter()
        pace.begin()
        for batch, labels in rows.epoch(counters.epoch, skip=counters.position):
            waited += pace.ready()
            lr = learning_rate(counters.done, planned=planned, train=train)
            for group in state.optimiser.param_groups:
                group["lr"] = lr
            recorded = recorder.due(counters.tried + 1)
            watch = partial(recorder.watch, scaler=state.scaler) if recorded else None
            scaled = state.scaler.is_enabled()
            result = take_step(
                network,
                state.optimiser,
                state.scaler,
                batch,
                precision=state.precision,
                train=train,
                quantiles=network.quantiles,
                watch=watch,
            )
            counters.count_step(result, labels=labels)
            if not result.skipped:
                state.average.update(network, step=counters.done)
            pace.end(labels)
            if recorded:
                recorder.record(result, counters, network=network, lr=lr, pace=pace, scaled=scaled)
            if result.skipped:
                rescue(session, result)
            bars += labels
            session.progress.step(session.news(result.loss, pace=pace))
            if stop.signal is not None:
                session.save()
                raise stop.error(where=f"after step {counters.tried} of {planned}", checkpoint=session.checkpoint)
            if session.save.due:
                recorder.flush()
                session.save()
            pace.begin()
        spent = max(time.perf_counter() - start, 1e-9)
        graded = validate(
            state.average.network, session.data, kind=train.loss, device=session.device, quantiles=network.quantiles
        )
        train_loss, lr = counters.train_loss, learning_rate(counters.done, planned=planned, train=train)
        best = counters.close_epoch(graded.loss)
        if best:
            state.keep_best()
        recorder.flush()
        seconds = time.perf_counter() - start
        numbers = {
            "train_loss": train_loss,
            "val_loss": graded.loss,
            "val_loss_unclipped": graded.loss_unclipped,
            "val_skill": graded.skill,
            **graded.scores,
            "best_val_loss": counters.best_loss,
            "lr": lr,
            "labelled_bars_per_s": bars / spent,
            "epoch_s": seconds,
            "loader_share": waited / spent,
            "recorder_share": recorder.seconds / spent,
            "skipped_steps": float(counters.skipped),
            **{f"val_below_q{q:g}": share for q, share in zip(network.quantiles, graded.below, strict=False)},
        }
        now = int(time.time() * 1000)
        session.tracker.log_metrics([Metric(name, value, counters.epoch, now) for name, value in numbers.items()])
        session.save()
        news = EpochNews(counters.epoch, train.epochs, train_loss, graded.loss, graded.ic, best, lr, seconds)
        session.progress.epoch(news)
        log.debug("%s", news)
        if stop.signal is not None and counters.epoch < train.epochs:
            raise stop.error(where=f"after epoch {counters.epoch}", checkpoint=session.checkpoint)
