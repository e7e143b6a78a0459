"""In: a session of training. Out: the same, its epochs done: steps, validation, checkpoints, stops."""

from __future__ import annotations

import logging
import time
from functools import partial

from klinepred.training.pace import Pace
from klinepred.training.progress import EpochNews
from klinepred.training.ranks import reseed
from klinepred.training.recorder import FlightRecorder
from klinepred.training.rescue import rescue
from klinepred.training.schedule import learning_rate
from klinepred.training.session import Session
from klinepred.training.step import take_step
from klinepred.training.tracker import Metric
from klinepred.training.validation import validate

log = logging.getLogger("klinepred.training")


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
            reseed(session.ranks, seed=train.seed, step=counters.tried)
            lr = learning_rate(counters.done, planned=planned, train=train)
            for group in state.optimiser.param_groups:
                group["lr"] = lr
            recorded = session.ranks.first and recorder.due(counters.tried + 1)
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
                spread=session.spread(labels),
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
            if session.stopping():
                session.save()
                raise stop.error(where=f"after step {counters.tried} of {planned}", checkpoint=session.checkpoint)
            if session.save.due:
                recorder.flush()
                session.save()
            pace.begin()
        spent = max(time.perf_counter() - start, 1e-9)
        graded = validate(
            state.average.network,
            session.data,
            kind=train.loss,
            device=session.device,
            quantiles=network.quantiles,
            ranks=session.ranks,
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
        if session.stopping() and counters.epoch < train.epochs:
            raise stop.error(where=f"after epoch {counters.epoch}", checkpoint=session.checkpoint)
