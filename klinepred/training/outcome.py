"""In: a dataset, the state after the last epoch. Out: the bundle with the best weights, and its copy in the record."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from klinepred import __version__
from klinepred.dataset.make import Dataset
from klinepred.dataset.split import CALIBRATION, TRAIN, VALIDATION
from klinepred.dataset.target import BREAK
from klinepred.errors import TrainingError
from klinepred.model.bundle import ModelBundle, save_bundle
from klinepred.model.calibration import Calibration, fit_calibration
from klinepred.model.ensemble import AnyNetwork, network_from
from klinepred.model.forward import forward_rows
from klinepred.model.golden import make_golden
from klinepred.model.golden_bars import make_golden_bars
from klinepred.model.novelty import fit_novelty
from klinepred.model.shelf import shelf_name
from klinepred.settings import ModelSettings, Pipeline, TrainSettings
from klinepred.training.precision import device_name
from klinepred.training.recalibration import recalibrate
from klinepred.training.state import Counters, State
from klinepred.training.tracker import Metric, Tracker
from klinepred.training.validation import zero_loss

log = logging.getLogger("klinepred.training")

SKIPPED: Final = 0.1
"""Share of skipped steps above which a run says so at its end: a loss scale finds its place sooner."""
POOR: Final = 2.0
"""Validation loss of the best epoch, in units of that of predicting 0, above which training has gone wrong."""
UNCERTIFIED: Final = "not audited"
"""What a run and its model say of themselves until somebody who has audited them says otherwise."""


def make_bundle(
    data: Dataset,
    state: State,
    *,
    run: Pipeline | None,
    model: ModelSettings,
    train: TrainSettings,
    device: torch.device,
    origin: Mapping[str, Any],
) -> ModelBundle:
    """The best weights on the CPU, calibrated on the part that neither training nor early stopping has seen.

    Parameters
    ----------
    origin
        What the tracker knows: run_id, run_name, commit, store_version.

    Raises
    ------
    TrainingError
        No step changed the weights, or no epoch had a finite validation loss.
    """
    counters = state.counters
    if not counters.done:
        raise TrainingError(
            "optimiser steps",
            expected="at least one whose gradients are finite",
            got=f"none: all {counters.tried} were skipped, the weights are those of the start"
            + (f" (loss scale {state.scaler.get_scale():g} at the end)" if state.scaler.is_enabled() else ""),
            do="lower --set train.init_scale, train longer, or use --precision bf16 or fp32",
        )
    if not state.best:
        raise TrainingError(
            "validation loss",
            expected="a finite number in at least one epoch",
            got=f"none in {counters.epoch} epochs",
            do="lower --set train.lr, or train with --precision fp32",
        )
    _warn(counters, zero=zero_loss(data, kind=train.loss, quantiles=model.quantiles))
    network = network_from(state.best, model, inputs=data.x_NF.shape[1], members=1)
    about = {
        "precision": state.precision.name,
        "seed": train.seed,
        "epochs": counters.epoch,
        "best_epoch": counters.best_epoch,
        "val_loss": counters.best_loss,
        "steps": counters.done,
        "skipped_steps": counters.skipped,
        **({"precision_fallback": counters.fallback} if counters.fallback else {}),
    }
    return assemble(
        data, network, run=run, model=model, device=device, about=about, origin=origin, recalibrated=train.recalibrate
    )


def _warn(counters: Counters, *, zero: float) -> None:
    """A word on a run that ended well and did not go well; `zero`: validation loss of predicting 0."""
    if counters.skipped > SKIPPED * counters.tried:
        log.warning(
            "%d of %d steps were skipped: their gradients were not finite (--precision bf16 or fp32 has more range)",
            *(counters.skipped, counters.tried),
        )
    if counters.best_loss > POOR * zero:
        log.warning(
            "the best validation loss, %.5g, is %.3g times that of predicting 0: the network has learned nothing;"
            " lower train.lr (klinepred models list shows this model all the same)",
            *(counters.best_loss, counters.best_loss / max(zero, 1e-300)),
        )


def assemble(
    data: Dataset,
    network: AnyNetwork,
    *,
    run: Pipeline | None,
    model: ModelSettings,
    device: torch.device,
    about: Mapping[str, Any],
    origin: Mapping[str, Any],
    recalibrated: bool,
) -> ModelBundle:
    """A bundle around a trained network, calibrated on the part that neither training nor early stopping has seen.

    Parameters
    ----------
    about, origin
        What training and the tracker tell of it, for the provenance.
    recalibrated
        Whether its expected value is scaled in place: `train.recalibrate`.
    """
    scaled = {"recalibration": recalibrate(network, data, device=device)} if recalibrated else {}
    for name, factor in scaled.items():
        log.info("%s: the network's expected value is scaled by %.3g, its slope on the validation part", name, factor)
    calibration = calibrate(network, data, device=device)
    golden = make_golden(network.eval(), data.x_NF, data.part("calibration"), flatten=model.flatten)
    golden_bars = make_golden_bars(data.features, clocks=data.calendars, until=data.split.calibration_end)
    novelty = fit_novelty(data.x_NF, train_N=data.mask("train"), validation_N=data.mask("validation"))
    return ModelBundle(
        network=network,
        model=model,
        dataset=data.settings,
        feature_set=data.features.name,
        feature_names=tuple(data.features.names),
        fingerprint=data.features.fingerprint,
        universe=tuple(data.universe),
        calendars=dict(data.calendars),
        scaler=data.scaler,
        split=data.split,
        calibration=calibration,
        pipeline=run.model_dump(mode="json") if run else {},
        provenance={
            "created": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "klinepred": __version__,
            "torch": str(torch.__version__),
            "device": device_name(device),
            **about,
            **scaled,
            "leak_certificate": UNCERTIFIED,
            **origin,
        },
        recipe=data.features.recipe,
        marks=data.features.marks,
        golden=golden,
        golden_bars=golden_bars,
        novelty=novelty,
    )


def calibrate(network: nn.Module, data: Dataset, *, device: torch.device) -> Calibration:
    """Fit the calibration of `network` (left on the CPU, where it was)."""
    held_N, spare_N = data.part_N == CALIBRATION, data.part_N == VALIDATION
    cut = data.sequences.covering(held_N | spare_N)
    pred_N = forward_rows(network.to(device), data.x_NF, cut, device=device)
    network.to("cpu")
    raw_N = np.where(data.part_N >= 0, data.raw_N, np.nan)
    untrained = (BREAK,) if data.settings.steps == "within-session" else ()
    pred_N[np.isin(data.kind_N, untrained)] = 0.0
    return fit_calibration(
        pred_N,
        raw_N,
        data.kind_N,
        time_N=data.rows.get_column("ts").to_physical().to_numpy(),
        held=held_N,
        spare=spare_N,
        train=data.part_N == TRAIN,
        untrained=untrained,
    )


def hand_over(bundle: ModelBundle, tracker: Tracker) -> None:
    """Give the tracker the bundle, under the name it gets on the shelf."""
    named = replace(bundle, name=shelf_name(bundle))
    if (factor := bundle.provenance.get("recalibration")) is not None:
        epochs = int(bundle.provenance["epochs"])
        tracker.log_metrics([Metric("recalibration", float(factor), epochs, int(time.time() * 1000))])
    with tempfile.TemporaryDirectory(prefix="klinepred-") as folder:
        tracker.log_model(named, save_bundle(named, Path(folder) / named.name))
