"""In: the checkpoint of an ensemble. Out: where its members' states lie, who has finished, whether it may go on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

from klinepred.dataset.make import Dataset
from klinepred.errors import TrainingError
from klinepred.model.bundle import ModelBundle, load_bundle, save_bundle
from klinepred.settings import ModelSettings, TrainSettings
from klinepred.training.checkpoint import data_fingerprint, refuse_other_clip, refuse_other_network
from klinepred.training.ranks import Ranks

ALIKE: Final = (
    *("seed", "epochs", "batch", "lr", "weight_decay", "schedule", "warmup", "clip", "clip_norm", "clip_value"),
    *("loss", "ema", "patience"),
)
"""Settings that decide what a member learns: all members of an ensemble have the same, but for the seed."""


def member_checkpoint(place: Path, number: int) -> Path:
    """Where member `number` (from 1) of the ensemble with checkpoint `place` saves its own state."""
    return _folder(place) / f"member-{number}.pt"


def finished_member(place: Path, number: int, *, ranked: Ranks) -> ModelBundle | None:
    """The bundle of a member that had finished before; None where it had not: as the first process sees it, in all.

    Errors as `load_bundle`.
    """
    folder = _folder(place) / f"member-{number}"
    if not ranked.told(folder.is_dir()):
        return None
    bundle = load_bundle(folder)
    if ranked.first:  # a kill may have come between the two in `keep_member`
        member_checkpoint(place, number).unlink(missing_ok=True)
    return bundle


def keep_member(bundle: ModelBundle, place: Path, number: int) -> None:
    """Keep a finished member for `--resume`; its own checkpoint, several times as large, is needed no more.

    Raises
    ------
    ModelError
        The disk is full, or the folder cannot be written.
    """
    save_bundle(bundle, _folder(place) / f"member-{number}")
    member_checkpoint(place, number).unlink(missing_ok=True)


def forget_members(place: Path) -> None:
    """Remove what an ensemble of another run left in the place of a new one."""
    shutil.rmtree(_folder(place), ignore_errors=True)


def check_ensemble_fits(
    saved: dict[str, Any], *, data: Dataset, model: ModelSettings, train: TrainSettings, world: int = 1
) -> list[str]:
    """Make sure that a checkpoint continues this very ensemble; remarks on what has changed.

    Raises
    ------
    TrainingError
        It is the checkpoint of a single network, of other networks or data, or settings differ that all members must
        share.
    """
    if "ensemble" not in saved:
        raise TrainingError(
            f"resume with train.ensemble = {train.ensemble}",
            expected="the checkpoint of an ensemble",
            got="the checkpoint of a single network",
            do="resume it with --set train.ensemble=1, or train the ensemble anew",
        )
    refuse_other_network(saved, model)
    refuse_other_clip(saved, data)
    before, now = saved["pipeline"]["train"], train.model_dump(mode="json")
    changed = [key for key in ALIKE if before[key] != now[key]]
    if changed or saved["data"] != data_fingerprint(data):
        had = ", ".join(f"train.{key} = {before[key]}" for key in changed) or saved["data"]
        has = ", ".join(f"train.{key} = {now[key]}" for key in changed) or data_fingerprint(data)
        raise TrainingError(
            f"resume of an ensemble with other {'settings' if changed else 'data'}",
            expected=had,
            got=has,
            do="resume with what the run began with, or start a new run",
        )
    remarks = [
        f"resumed with train.{key} = {now[key]}, before {before[key]}: members that had finished keep theirs"
        for key in now
        if key != "ensemble" and key in before and before[key] != now[key]
    ]
    had = int(saved.get("world", world))  # older checkpoints do not say
    if had != world:
        remarks.append(
            f"resumed by {world} process{'es' if world > 1 else ''}, before {had}: members to come take"
            f" {world * train.batch} sequences a step, those that had finished took {had * train.batch}"
        )
    if saved["ensemble"] != train.ensemble:
        remarks.append(f"resumed with train.ensemble = {train.ensemble}, before {saved['ensemble']}")
    return remarks


def _folder(place: Path) -> Path:
    return place.with_name(f"{place.stem}.members")
