"""In: a saved model, a run that shall begin from its weights. Out: those weights, or why they cannot be had."""

# Shapes: N rows, F features.

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from klinepred.dataset.make import Dataset
from klinepred.dataset.scale import Scaler, chosen_blocks, moments
from klinepred.dataset.split import TRAIN, Split
from klinepred.errors import ModelError, TrainingError, UsageError
from klinepred.features.spec import FeatureSet, tell_apart
from klinepred.model.bundle import ModelBundle
from klinepred.model.ensemble import members_of
from klinepred.settings import ModelSettings, TrainSettings
from klinepred.training.checkpoint import load_checkpoint

log = logging.getLogger("klinepred.training")

KEY: Final = "init_from"
"""Where checkpoint, provenance and MLflow run say what a run began from."""
SCALER: Final = "inputs_scaler"
"""Where a checkpoint keeps the scaler of the inputs."""
SHIFT: Final = 0.5
STRETCH: Final = 1.5
"""A feature has drifted when its mean moved by half its old spread, or its spread grew or shrank by half."""


@dataclass(frozen=True)
class WarmStart:
    """What a run begins from instead of random weights.

    Attributes
    ----------
    weights
        One `state_dict` for each member, or one for all; none where the run has begun long ago and is resumed.
    about
        model, run_id, members, train_end: plain values for checkpoint and provenance.
    """

    weights: tuple[dict[str, torch.Tensor], ...]
    about: dict[str, Any]

    def of_member(self, number: int) -> WarmStart:
        """What member `number` (from 1) of an ensemble begins from: its own predecessor, or the one network."""
        own = self.weights[number - 1] if len(self.weights) > 1 else self.weights[0]
        return WarmStart((own,), self.about)


def begin_from(
    bundle: ModelBundle | None, *, data: Dataset, model: ModelSettings, train: TrainSettings, resume: Path | None
) -> WarmStart | None:
    """The start that `bundle` offers to a run; None without one.

    Raises
    ------
    UsageError, ModelError, TrainingError
        See `refuse_both`, `check_start` and `check_data`.
    """
    if bundle is None:
        return None
    refuse_both(bundle.name, str(resume) if resume else None)
    check_start(bundle, model=model, features=data.features, train=train)
    check_data(bundle, data)
    members = members_of(bundle.network)
    about = {
        "model": bundle.name,
        "run_id": bundle.run_id,
        "members": len(members),
        "train_end": bundle.split.train_end.isoformat(),
    }
    return WarmStart(tuple(dict(member.state_dict()) for member in members), about)


def check_start(bundle: ModelBundle, *, model: ModelSettings, features: FeatureSet, train: TrainSettings) -> None:
    """Refuse weights of another architecture, or that learned other features.

    Dropout may differ: it has no weights. An ensemble begins from one network or from as many.

    Raises
    ------
    ModelError
        It names the settings, or the features, that differ.
    """
    where = f"--init-from {bundle.name}"
    had, has = (settings.model_dump(mode="json", exclude={"preset", "dropout"}) for settings in (bundle.model, model))
    differ = [key for key in has if had[key] != has[key]]
    if differ:
        raise ModelError(
            f"{where}: another architecture",
            expected=f"this run's network: {', '.join(f'model.{key} = {has[key]}' for key in differ)}",
            got=f"a model with {', '.join(f'{key} = {had[key]}' for key in differ)}",
            do="train with the model's settings (klinepred models show), or without --init-from",
        )
    if bundle.fingerprint != features.fingerprint:
        before = bundle.marks or dict.fromkeys(bundle.feature_names, "")
        apart = tell_apart(before, features.marks)
        raise ModelError(
            f"{where}: other features",
            expected=f"the {len(features.names)} features of this run, fingerprint {features.fingerprint}",
            got=f"{len(bundle.feature_names)}, fingerprint {bundle.fingerprint}{', ' if apart else ''}{apart}",
            do="give the pipeline the model's features, or train without --init-from",
        )
    members = len(members_of(bundle.network))
    if members not in (1, train.ensemble):
        raise ModelError(
            f"{where}: an ensemble",
            expected="one network" if train.ensemble == 1 else f"one network, or {train.ensemble} of them",
            got=f"{members} networks",
            do=f"train with --set train.ensemble={members}, or begin from a model of one network",
        )


def check_seen(bundle: ModelBundle, new: Split) -> None:
    """Refuse a start that has seen what a run with this split is validated or tested on.

    Raises
    ------
    TrainingError
        The model learned from, or was chosen on, sessions after those of this run.
    """
    old = bundle.split
    if old.train_end > new.train_end or old.validation_end > new.validation_end:
        raise TrainingError(
            f"--init-from {bundle.name}: it has seen labels that this run is graded on",
            expected=f"a model trained up to {new.train_end} and chosen up to {new.validation_end}, or earlier",
            got=f"one trained up to {old.train_end} and chosen up to {old.validation_end}",
            do="move dataset.split.train_end and .validation_end to these dates or later, or leave out --init-from",
        )


def check_data(bundle: ModelBundle, data: Dataset) -> None:
    """Refuse inputs in other units than the model's weights know; say what else differs.

    Raises
    ------
    TrainingError
        The data are scaled by another scaler, or see `check_seen`.
    """
    check_seen(bundle, data.split)
    if data.scaler.to_dict() != bundle.scaler.to_dict():
        raise TrainingError(
            f"--init-from {bundle.name}: inputs in other units",
            expected="features scaled by the scaler of the model, in whose units its weights were learned",
            got="a dataset with a scaler of its own",
            do="make the dataset with make_dataset(…, scaler=bundle.scaler)",
        )
    for key in ("target", "horizon", "steps", "cut", "window", "burn_in", "label_clip", "feature_clip"):
        had, has = getattr(bundle.dataset, key), getattr(data.settings, key)
        if had != has and not (key == "window" and data.settings.cut == "session"):
            kept = ": the model's is kept, with its scaler" if key == "feature_clip" else ""
            log.warning("--init-from %s: dataset.%s = %s, there it was %s%s", bundle.name, key, has, had, kept)
    moved = drifted(data)
    if moved:
        log.warning(
            "--init-from %s: its scaler is kept, and %d of %d features have drifted from it: %s%s",
            *(bundle.name, len(moved), data.x_NF.shape[1], "; ".join(moved[:5]), "; …" if len(moved) > 5 else ""),
        )


def run_params(data: Dataset, begun: Mapping[str, Any] | None) -> dict[str, str | float]:
    """What MLflow shows of a run's data, and of the model it began from (`WarmStart.about`)."""
    rows = {f"rows_{part}": count for part, count in data.counts().items()}
    return {"symbols": len(data.universe), **rows, **({KEY: str(begun["model"])} if begun else {})}


def drifted(data: Dataset) -> list[str]:
    """Features whose train rows differ from the scaler in centre or spread, in its units, the furthest first."""
    mean_F, spread_F = moments(chosen_blocks(data.x_NF, data.part_N == TRAIN), data.x_NF.shape[1])
    stretch_F = np.maximum(spread_F, 1.0 / np.maximum(spread_F, 1e-9))
    far_F = (spread_F > 1e-9) & ((np.abs(mean_F) > SHIFT) | (stretch_F > STRETCH))
    order = sorted(np.flatnonzero(far_F), key=lambda index: -max(abs(mean_F[index]), np.log(stretch_F[index])))
    return [f"{data.scaler.names[i]} (mean {mean_F[i]:+.2f}, spread {spread_F[i]:.2f})" for i in order]


def kept_scaler(checkpoint: Path) -> Scaler | None:
    """The scaler that a run to be resumed took over from the model it began from; None where it has its own."""
    saved = load_checkpoint(checkpoint)
    return Scaler.from_dict(saved[SCALER]) if saved.get(KEY) else None


def refuse_both(model: str | None, run: str | None) -> None:
    """--init-from and --resume are two things.

    Raises
    ------
    UsageError
        Both are given.
    """
    if model is not None and run is not None:
        raise UsageError(
            f"--init-from {model} with --resume {run}",
            expected="one of them: --resume goes on with a run, --init-from begins a new one from a model's weights",
            got="both",
            do="leave one out",
        )
