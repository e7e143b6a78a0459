"""In: the state of a run. Out: a file that `--resume` continues from, loadable with `weights_only=True`."""

from __future__ import annotations

import hashlib
import logging
import struct
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError  # the name of an error; nothing of pickle is called
from typing import Any, Final

import numpy as np
import torch

from klinepred import __version__
from klinepred.dataset.make import Dataset
from klinepred.errors import TrainingError, UsageError
from klinepred.paths import Workspace, open_atomic
from klinepred.settings import ModelSettings, Pipeline, TrainSettings
from klinepred.training.outline import Outline, outline

log = logging.getLogger("klinepred.training")

FORMAT: Final = 1
NO_TENSORS: Final = (
    *(RuntimeError, EOFError, ValueError, LookupError, TypeError, AttributeError, AssertionError),
    *(MemoryError, struct.error),
)
"""What torch's own unpickler runs into, beside its refusals, where the bytes are none that torch wrote."""
ALWAYS: Final = ("data", "pipeline", "run_id")
OF_ONE: Final = ("network", "average", "optimiser", "scaler", "precision", "counters", "best", "rng", "rng_cuda")
"""What the checkpoint of one network holds beside that; an ensemble's holds `OF_MANY`, its members' lie beside it."""
OF_MANY: Final = ("start",)


def save_checkpoint(path: Path, state: dict[str, Any], *, data: str, run: Pipeline, origin: Mapping[str, Any]) -> None:
    """Write a checkpoint; the one before it stays until the new one is whole on the disk.

    Parameters
    ----------
    state
        From `klinepred.training.state.snapshot`.
    data
        From `data_fingerprint`.
    origin
        What is known of it: run_id, store_version, the model it began from (init_from); each may be missing.

    Raises
    ------
    TrainingError
        The disk is full, or the folder cannot be written.
    """
    table = {
        "klinepred_checkpoint": FORMAT,
        "klinepred": __version__,
        "torch": str(torch.__version__),
        "data": data,
        "pipeline": run.model_dump(mode="json"),
        "run_id": str(origin.get("run_id", "")),
        "store_version": origin.get("store_version"),
        "init_from": origin.get("init_from"),
        **state,
    }
    try:
        with open_atomic(path) as out:
            torch.save(table, out)
    except (OSError, RuntimeError) as error:
        raise TrainingError(
            f"checkpoint {path}",
            expected="room and permission to write it",
            got=_reason(error),
            do="free space or mend the permissions, then "
            + ("continue with --resume: the checkpoint before it is intact" if path.exists() else "train again"),
        ) from error


def load_checkpoint(path: Path, *, glance: bool = False) -> dict[str, Any]:
    """Read a checkpoint onto the CPU; nothing in it is executed.

    Parameters
    ----------
    glance
        For what is no tensor: these are mapped, not read, and checksums are not looked at.

    Raises
    ------
    TrainingError
        There is no such file, it is no checkpoint of klinepred, or it is damaged.
    """
    try:
        if not zipfile.is_zipfile(path):  # torch would read an older format, with a warning
            raise _foreign(path, "a file of another kind" if path.is_file() else "no such file")
        with zipfile.ZipFile(path) as parts:
            if any(part.compress_type != zipfile.ZIP_STORED for part in parts.infolist()):
                raise _foreign(path, "one with packed parts, which torch never writes")
            broken = None if glance else parts.testzip()  # torch.load does not look at the checksums
        if broken is not None:
            raise _foreign(path, f"a damaged one: the checksum of {broken} is another")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch wonders aloud about bytes that it then refuses
            table = torch.load(path, map_location="cpu", weights_only=True, mmap=glance)
    except OSError as error:
        raise _foreign(path, error.strerror or str(error)) from error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise _foreign(path, f"a damaged one: {error}") from error
    except (*NO_TENSORS, UnpicklingError) as error:
        raise _foreign(path, "a file that torch does not load with weights_only=True") from error
    number = table.get("klinepred_checkpoint") if isinstance(table, dict) else None
    if not isinstance(number, int) or not 1 <= number <= FORMAT:
        raise _foreign(path, f"format {number!r}")
    lacking = [key for key in (*ALWAYS, *(OF_MANY if "ensemble" in table else OF_ONE)) if key not in table]
    if lacking:
        raise _foreign(path, f"one without {', '.join(lacking)}")
    return dict(table)


def check_fits(
    saved: dict[str, Any], *, data: Dataset, model: ModelSettings, train: TrainSettings, world: int = 1
) -> list[str]:
    """Make sure that a checkpoint continues this very training; remarks on train settings that have changed.

    With another number of processes, `world`, an optimiser step takes another number of sequences: the counters of
    `saved` are turned into steps of that size.

    Raises
    ------
    TrainingError
        Another network or other data, or the order of the data would change in the middle of an epoch.
    """
    before = saved["pipeline"]
    if "ensemble" in saved:
        raise _other(
            "number of networks", f"train.ensemble = {saved['ensemble']}", f"train.ensemble = {train.ensemble}"
        )
    refuse_other_network(saved, model)
    refuse_other_clip(saved, data)
    remarks = []
    if saved["data"] != data_fingerprint(data):
        if "outline" not in saved or not Outline.from_dict(saved["outline"]).near(outline(data)):
            raise _other("data set", saved["data"], data_fingerprint(data))
        remarks.append("features differ from those of before in their last digits: the resumed run will, too")
    now = train.model_dump(mode="json")
    changed = [key for key in now if key in before["train"] and before["train"][key] != now[key]]
    alike = world * now["batch"] == int(saved.get("world", 1)) * before["train"]["batch"]
    for key in ("seed",) if alike else ("seed", "batch"):
        if key in changed and saved["counters"]["position"]:
            raise _other(f"train.{key} in the middle of an epoch", before["train"][key], now[key])
    remarks += _other_world(saved, world=world, size=train.batch)
    remarks += [f"resumed with train.{key} = {now[key]}, before {before['train'][key]}" for key in changed]
    if "epochs" in changed and now["schedule"] == "cosine":
        remarks.append(
            f"the learning rate goes on as in a run of {now['epochs']} epochs, but until here it fell as in one of"
            f" {before['train']['epochs']}: not what {now['epochs']} epochs in one go would have given"
            ' (with train.schedule = "constant" it is)'
        )
    return remarks


def refuse_other_network(saved: Mapping[str, Any], model: ModelSettings) -> None:
    """Nothing where a checkpoint is of a network like `model`; a preset's name alone makes no other.

    Raises
    ------
    TrainingError
        It is of another; each setting that differs is named.
    """
    had, has = (_network(settings) for settings in (ModelSettings.model_validate(saved["pipeline"]["model"]), model))
    if had != has:
        keys = [key for key in has if had[key] != has[key]]
        raise _other("network", *(", ".join(f"{key} = {one[key]}" for key in keys) for one in (had, has)))


def refuse_other_clip(saved: Mapping[str, Any], data: Dataset) -> None:
    """Nothing where labels are clipped for the loss as before: the fingerprint of the data is of the unclipped ones.

    Raises
    ------
    TrainingError
        They are clipped elsewhere: losses before and after could not be compared, nor the best epoch be found.
    """
    before, now = saved["pipeline"].get("dataset", {}).get("label_clip"), data.settings.label_clip
    if before is not None and before != now:
        raise _other("loss", f"dataset.label_clip = {before:g}", f"dataset.label_clip = {now:g}")


def _other_world(saved: dict[str, Any], *, world: int, size: int) -> list[str]:
    """Turn the counters into steps of `world` processes, rounded down: no sequence of the epoch is left out."""
    before = int(saved.get("world", 1))
    if before == world:
        return []
    counters, size_before = saved["counters"], int(saved["pipeline"]["train"]["batch"])
    for key in ("position", "tried", "done", "clipped"):
        counters[key] = counters[key] * before * size_before // (world * size)
    counters["done"] = max(counters["done"], min(1, int(saved["counters"]["epoch"])))
    return [
        f"resumed by {world} process{'es' if world > 1 else ''}, before {before}: a step now takes {world * size}"
        f" sequences, before {before * size_before}; steps are counted anew in that size, and losses will differ from"
        f" those of {before}"
    ]


def data_fingerprint(data: Dataset) -> str:
    """Rows, features and a hash over features, labels, parts and sequences."""
    digest = hashlib.blake2b(digest_size=16)
    cut = data.sequences
    for array in (data.x_NF, data.y_N, data.part_N, cut.start_S, cut.length_S, cut.lead_S):
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    rows, columns = data.x_NF.shape
    return f"{rows} rows x {columns} features, hash {digest.hexdigest()}"


def checkpoint_folder(space: Workspace) -> Path:
    """Where the checkpoints of a workspace lie, one file per run."""
    return space.mlruns / "checkpoints"


def find_checkpoint(space: Workspace, run: str) -> Path:
    """The checkpoint that `--resume RUN` means.

    Parameters
    ----------
    run
        A path, "last" (the newest of the workspace), a run's name, or at least the first 6 characters of a run id.

    Raises
    ------
    UsageError
        None, or more than one, fits.
    """
    if Path(run).is_file():
        return Path(run)
    files = sorted(checkpoint_folder(space).glob("*.pt"), key=lambda path: path.stat().st_mtime)
    if run == "last":
        found = files[-1:]
    else:
        found = [path for path in files if path.stem == run or path.stem.rpartition("-")[0] == run] or [
            path for path in files if len(run) >= 6 and path.stem.rpartition("-")[2].startswith(run[:8])
        ]
    if len(found) == 1:
        return found[0]
    have = ", ".join(path.stem for path in reversed(files[-5:])) or "none"
    raise UsageError(
        f"--resume {run}",
        expected='a checkpoint file, the name or id of one run, or "last"',
        got=f"{len(found)} that fit; newest checkpoints of the workspace: {have}",
        do="name one of these" if files else "train first; a checkpoint is written after every epoch",
    )


def checkpoint_of(space: Workspace, job: str, *, pipeline: str) -> Path | None:
    """The newest checkpoint that processes of this job (`klinepred.training.ranks.job`) wrote of a pipeline, if any.

    Others may have trained in the workspace since; a checkpoint that cannot be read is passed by with a warning.
    """
    files = sorted(checkpoint_folder(space).glob("*.pt"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files if job else []:
        try:
            table = load_checkpoint(path, glance=True)
            if table.get("job") == job and table["pipeline"]["name"] == pipeline:
                load_checkpoint(path)  # whole
                return path
        except TrainingError as error:
            log.warning("passed by: %s", error)
    return None


def _network(model: ModelSettings) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude={"preset"})


def _reason(error: Exception) -> str:
    cause = error.__context__ if isinstance(error.__context__, OSError) else error
    return getattr(cause, "strerror", None) or str(cause).splitlines()[0]


def _other(what: str, before: object, now: object) -> TrainingError:
    return TrainingError(
        f"resume with another {what}",
        expected=str(before),
        got=str(now),
        do="resume with what the run began with, or start a new run",
    )


def _foreign(path: Path, got: str) -> TrainingError:
    return TrainingError(
        f"checkpoint {path}",
        expected=f"a checkpoint of klinepred, format {FORMAT}",
        got=got,
        do="name another run or file with --resume",
    )
