"""In: a workspace, a trial's result. Out: a small file that says what has passed; what `train` should know of it."""

from __future__ import annotations

import hashlib
import json
import logging
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from klinepred import __version__
from klinepred.dataset.make import Dataset
from klinepred.model.lstm import build_network, parameter_count
from klinepred.paths import Workspace, write_atomic
from klinepred.settings import ModelSettings, Pipeline, TrainSettings
from klinepred.training.checkpoint import data_fingerprint
from klinepred.training.precision import choose_device, device_name, resolve

log = logging.getLogger("klinepred.trial")

LARGE: Final = 10_000_000
"""Parameters above which training takes long enough to try it out first."""
TRAINING: Final = ("batch", "lr", "loss", "clip", "clip_norm", "clip_value", "init_scale", "growth_interval")
"""Settings of training that decide how large gradients and updates are. Length of the run, seed, schedule, average and
record do not: a check stays valid when they change."""

Subject = dict[str, Any]


def subject_of(data: Dataset, *, model: ModelSettings, train: TrainSettings, device: torch.device) -> Subject:
    """What a check is about, as plain values: it is valid for this and nothing else.

    The device by name, the versions of torch and klinepred, the network (whatever its preset is called), the settings
    `TRAINING`, and the data by their fingerprint: another bar, feature or split is another subject.
    """
    settings = train.model_dump(mode="json")
    return {
        "device": machine(device),
        "torch": str(torch.__version__),
        "klinepred": __version__,
        "network": model.model_dump(mode="json", exclude={"preset"}),
        "training": {name: settings[name] for name in TRAINING},
        "data": data_fingerprint(data),
    }


def machine(device: torch.device) -> str:
    """The device in words; a CPU with the name of its model."""
    if device.type != "cpu":
        return device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.is_file() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"cpu ({name or platform.processor() or platform.machine()})"


def folder_of(space: Workspace) -> Path:
    """Where the checks of a workspace are kept, one file a subject."""
    return space.mlruns / "amp-checks"


def keep_result(space: Workspace, subject: Subject, *, verdicts: Mapping[str, str], about: Mapping[str, Any]) -> Path:
    """Keep what a check found, in place of an older one of the same subject.

    Parameters
    ----------
    verdicts
        By precision, "parity" or what speaks against it.
    about
        Whatever else is worth knowing: run, date, recommendation.
    """
    path = folder_of(space) / f"{_key(subject)}.json"
    table = {"subject": subject, "verdicts": dict(verdicts), **about}
    write_atomic(path, json.dumps(table, ensure_ascii=False, indent=1) + "\n")
    return path


def find_result(space: Workspace, subject: Subject) -> dict[str, Any] | None:
    """What the last check of this subject found; None without one."""
    path = folder_of(space) / f"{_key(subject)}.json"
    table = _read(path) if path.is_file() else None
    return table if table is not None and table["subject"] == subject else None


def untried(space: Workspace, run: Pipeline, data: Dataset) -> str | None:
    """What to tell someone who is about to train a large network; None if it is small, or its precision has passed.

    Raises
    ------
    UsageError, TrainingError
        The device cannot be used, or not in this precision.
    """
    with torch.device("meta"):
        count = parameter_count(build_network(run.model, inputs=data.x_NF.shape[1]))
    if count <= LARGE:
        return None
    device = choose_device(run.train.device)
    precision = resolve(run.train, device)
    name = "tf32" if precision.name == "fp32" and precision.tf32 else precision.name
    subject = subject_of(data, model=run.model, train=run.train, device=device)
    do = f"try it in minutes first: klinepred amp-check -p {run.name} (with the same --set)"
    size = f"{run.model.preset} has {count / 1e6:.1f} million parameters"
    found = find_result(space, subject)
    if found is None:
        return (
            f"{size}, and no amp-check of it has passed on this device and these data{_nearest(space, subject)}; {do}"
        )
    verdict = found["verdicts"].get(name, "not tried")
    if verdict == "parity":
        return None
    return f"{size}, and its amp-check did not pass {name} ({verdict}); see MLflow run {found.get('run_id')}, or {do}"


def _nearest(space: Workspace, subject: Subject) -> str:
    """In what the newest check of this very network differs, in brackets; empty without any."""
    files = sorted(folder_of(space).glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for table in filter(None, map(_read, files)):
        if table["subject"].get("network") == subject["network"]:
            other = [name for name, value in subject.items() if table["subject"].get(name) != value]
            return f" (the last one was with another {' and '.join(other)})"
    return ""


def _read(path: Path) -> dict[str, Any] | None:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(table["subject"], dict) and isinstance(table["verdicts"], dict):
            return dict(table)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    log.warning("%s is no result of amp-check that can be read: it does not count", path)
    return None


def _key(subject: Subject) -> str:
    text = json.dumps(subject, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
