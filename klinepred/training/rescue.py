"""In: a session whose last step was skipped. Out: patience, a lower precision, or the end of the run."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import numpy as np

from klinepred.errors import TrainingError
from klinepred.training.overflow import ADVICE, Overflow, examine
from klinepred.training.precision import lower
from klinepred.training.session import Session
from klinepred.training.step import StepResult

log = logging.getLogger("klinepred.training")


def rescue(session: Session, result: StepResult) -> None:
    """Decide what a skipped step means.

    Nothing yet while the GradScaler may still find a scale: fewer than `train.overflow_steps` in a row, and the batch
    itself is finite. Otherwise the batch is examined and its rows saved; then the session goes on in the next
    precision with more range if `train.on_overflow` is "fallback" and that can help, or the run ends. The weights are
    those of the last step that was not skipped in either case.

    Raises
    ------
    TrainingError
        It names rows, feature and file; the checkpoint is saved.
    """
    state, train, counters = session.state, session.train, session.state.counters
    batch = session.rows.batch_rows(counters.epoch, counters.position - 1)
    waits = state.scaler.is_enabled() and counters.in_a_row < train.overflow_steps
    if waits and np.isfinite(session.data.x_NF[batch.rows_BT]).all():
        return
    found = examine(state.network, session.data, batch, precision=state.precision, device=session.device)
    steps = "1 step" if counters.in_a_row == 1 else f"{counters.in_a_row} steps in a row"
    got = f"infinite or NaN ones in {steps}, up to step {counters.tried}, in {state.precision.name}"
    if state.scaler.is_enabled():
        got += f" at a loss scale of {result.scale:g}"
    kept = _keep(found, session)
    down = lower(state.precision, train, session.device) if train.on_overflow == "fallback" else None
    if down is not None and found.cause != "inputs":
        was = state.precision.name
        session.fall(down)
        log.warning("gradients: %s; falling back from %s to %s; %s", got, was, down.name, found.words())
        session.tracker.set_tags({"precision": down.name, "precision_fallback": counters.fallback})
        return
    counters.in_a_row = 0
    session.save()
    raise TrainingError(
        "gradients",
        expected="finite numbers, at the latest once a loss scale has come down",
        got=f"{got}; {found.words()}",
        do=f"{ADVICE[found.cause]}; all rows of the batch: {kept}"
        + (f"; last good weights: {session.checkpoint}" if session.checkpoint else ""),
    )


def _keep(found: Overflow, session: Session) -> str:
    """Save the rows beside the checkpoint and in the run's artifacts; where, in words."""
    name = f"overflow-step-{session.state.counters.tried}.parquet"
    with tempfile.TemporaryDirectory(prefix="klinepred-") as folder:
        found.write(Path(folder) / name)
        session.tracker.log_folder(Path(folder), under="overflow")
    if session.checkpoint is None:
        return f"{name}, among the run's artifacts if it is recorded"
    place = session.checkpoint.with_name(f"{session.checkpoint.stem}-{name}")
    found.write(place)
    return str(place)
