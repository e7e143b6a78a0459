"""In: a dataset, settings with `train.ensemble` above 1. Out: one bundle of networks that differ in their seed."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from klinepred.dataset.make import Dataset
from klinepred.model.bundle import ModelBundle
from klinepred.model.ensemble import members_of, unite
from klinepred.settings import ModelSettings, Pipeline, TrainSettings
from klinepred.training.checkpoint import load_checkpoint, save_checkpoint
from klinepred.training.data_note import record_data
from klinepred.training.members import (
    check_ensemble_fits,
    finished_member,
    forget_members,
    keep_member,
    member_checkpoint,
)
from klinepred.training.outcome import UNCERTIFIED, assemble, hand_over
from klinepred.training.precision import device_name
from klinepred.training.progress import Progress
from klinepred.training.ranks import job, ranks
from klinepred.training.runs import TEST_AFTER
from klinepred.training.signals import StopRequest, TrainingStopped, resume_advice
from klinepred.training.tracker import Metric, RunStatus, Tracker
from klinepred.training.validation import Validation, validate
from klinepred.training.warm import KEY, SCALER, WarmStart, run_params

log = logging.getLogger("klinepred.training")


class TrainOne(Protocol):
    """`klinepred.training.loop.train_one`."""

    def __call__(
        self,
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
        """Train it."""


def train_ensemble(
    data: Dataset,
    model: ModelSettings,
    train: TrainSettings,
    *,
    train_one: TrainOne,
    tracker: Tracker,
    progress: Progress,
    resume: Path | None,
    checkpoint: Path | None,
    pipeline: Pipeline | None,
    shelve: Callable[[ModelBundle], None] | None,
    start: WarmStart | None,
) -> ModelBundle:
    """Train `train.ensemble` networks one after another, with seeds `train.seed`, `train.seed` + 1, …

    Each is what training it alone would have given, with a run of its own below the ensemble's. The bundle answers with
    the mean of them all and is calibrated on that mean. A run that is resumed keeps its finished members and goes on in
    the middle of the one that was interrupted. Several processes train each member together, one member after another.
    Parameters and errors as for `klinepred.training.loop.train_one`.
    """
    ranked = ranks()
    named = pipeline or tracker.pipeline
    settings = {"dataset": data.settings, "model": model, "train": train}
    run = (named or Pipeline(name="unnamed")).model_copy(update=settings)
    device = ranked.device(train.device)
    saved = load_checkpoint(resume) if resume else None
    fits = partial(check_ensemble_fits, data=data, model=model, train=train, world=ranked.world)
    for remark in fits(saved) if saved else []:
        log.warning("%s", remark)
    if start is None and saved and saved.get(KEY):
        start = WarmStart(tuple(saved["start"]), saved[KEY])  # for the members that have not begun
    begun = start.about if start else None
    with StopRequest() as stop:
        origin = tracker.start(
            run,
            params=run_params(data, begun),
            tags={
                "device": device_name(device),
                TEST_AFTER: data.split.calibration_end.isoformat(),
                **({} if saved else {"leak_certificate": UNCERTIFIED}),
            },
            resume=saved["run_id"] if saved else None,
        )
        origin = ranked.told(origin)
        origin = {**origin, KEY: begun} if begun else origin
        status: RunStatus = "FAILED"
        try:
            fingerprint = record_data(data, tracker)
            ranked.same("data set", fingerprint)
            own = resume or checkpoint or tracker.checkpoint
            known = ranked.told(str(own) if own else None)  # the others read what the first one writes
            place = Path(known) if known else None
            if place is not None and ranked.first:
                if saved is None:
                    forget_members(place)
                begin = list(start.weights) if start else []
                table = {"ensemble": train.ensemble, "start": begin, SCALER: data.scaler.to_dict(), "job": job()}
                table["world"] = ranked.world
                save_checkpoint(place, table, data=fingerprint, run=run, origin=origin)
            bundles: list[ModelBundle] = []
            for number in range(1, train.ensemble + 1):
                done = finished_member(place, number, ranked=ranked) if place is not None and saved else None
                if done is None:
                    if ranked.sums(float(stop.signal is not None))[0]:
                        raise stop.error(where=f"after {len(bundles)} of {train.ensemble} members", checkpoint=place)
                    done = _train_member(number, data, model, train, train_one, tracker, progress, place, named, start)
                else:
                    log.info("member %d of %d had finished before", number, train.ensemble)
                bundles.append(done)
            network = unite([member for bundle in bundles for member in members_of(bundle.network)])
            graded = validate(
                network.to(device), data, kind=train.loss, device=device, quantiles=model.quantiles, ranks=ranked
            )
            network.to("cpu")
            tracker.log_metrics(_metrics(graded, bundles))
            about = _about(bundles, val_loss=graded.loss)
            named_run = run if named else None
            bundle = assemble(
                *(data, network),
                run=named_run,
                model=model,
                device=device,
                about=about,
                origin=origin,
                recalibrated=train.recalibrate,
            )
            hand_over(bundle, tracker)
            if shelve is not None:
                shelve(bundle)
            status = "FINISHED"
        except (TrainingStopped, KeyboardInterrupt):
            status = "KILLED"
            raise
        finally:
            tracker.end(status)
    return bundle


def _train_member(
    number: int,
    data: Dataset,
    model: ModelSettings,
    train: TrainSettings,
    train_one: TrainOne,
    tracker: Tracker,
    progress: Progress,
    place: Path | None,
    pipeline: Pipeline | None,
    start: WarmStart | None,
) -> ModelBundle:
    """Train one member, from its own checkpoint if there is one; keep it where the ensemble's checkpoint lies."""
    own = train.model_copy(update={"seed": train.seed + number - 1, "ensemble": 1})
    state = member_checkpoint(place, number) if place is not None else None
    ranked = ranks()
    begun = ranked.told(state is not None and state.is_file())
    log.info("member %d of %d, seed %d", number, train.ensemble, own.seed)
    try:
        bundle = train_one(
            data,
            model,
            own,
            tracker=tracker.member(number),
            progress=progress,
            resume=state if begun else None,
            checkpoint=state,
            pipeline=pipeline,
            shelve=None,
            start=start.of_member(number) if start is not None else None,
        )
    except TrainingStopped as stopped:
        if place is not None and ranked.first:
            os.utime(place)  # `--resume last` means this run
        where = f"{stopped.got} of member {number} of {train.ensemble}"
        raise type(stopped)(stopped.summary, expected=stopped.expected, got=where, do=resume_advice(place)) from stopped
    if place is not None and ranked.first:
        keep_member(bundle, place, number)
    return bundle


def _about(bundles: list[ModelBundle], *, val_loss: float) -> dict[str, Any]:
    """What the ensemble says of its training: sums over the members, and each of them."""
    keys = (
        "run_id",
        "seed",
        "epochs",
        "best_epoch",
        "val_loss",
        "steps",
        "skipped_steps",
        "precision",
        "precision_fallback",
    )
    parts = [{key: bundle.provenance[key] for key in keys if key in bundle.provenance} for bundle in bundles]
    return {
        "precision": ", ".join(sorted({str(part["precision"]) for part in parts})),
        "val_loss": val_loss,
        **{key: sum(int(part[key]) for part in parts) for key in ("epochs", "steps", "skipped_steps")},
        "members": parts,
    }


def _metrics(graded: Validation, bundles: list[ModelBundle]) -> list[Metric]:
    """Scores of the mean of all members at step 1, and the validation loss of each member, by its number."""
    now = int(time.time() * 1000)
    scores = {
        "val_loss": graded.loss,
        "val_loss_unclipped": graded.loss_unclipped,
        "val_skill": graded.skill,
        "val_ic": graded.ic,
        "val_rank_ic": graded.rank_ic,
    }
    return [Metric(f"ensemble/{name}", value, 1, now) for name, value in scores.items()] + [
        Metric("member/val_loss", float(bundle.provenance["val_loss"]), number, now)
        for number, bundle in enumerate(bundles, start=1)
    ]
