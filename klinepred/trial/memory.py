"""In: a network, a precision, the shape of a batch. Out: the highest memory that training takes, where it is known."""

from __future__ import annotations

import gc
import json
import logging
import os
import subprocess
import sys

import torch

from klinepred.settings import ModelSettings, TrainSettings
from klinepred.training.precision import Precision
from klinepred.trial.lane import make_lane

log = logging.getLogger("klinepred.trial")

STEPS = 2
"""The optimiser's state is made in the first step; the second one has all of it."""
PATIENCE_S = 300.0


def peak_mib(
    *,
    model: ModelSettings,
    train: TrainSettings,
    precision: Precision,
    shape: tuple[int, int, int],
    last_only: bool,
    device: torch.device,
) -> float | None:
    """Highest memory of two training steps in MiB, above what was there before the network.

    That is weights, gradients, the optimiser's state and what the backward pass needs, not the matrix of features.
    On CUDA it is what torch allocated on the card. On a CPU one process's peak says nothing of one precision, so a
    child process of its own takes the steps; None where it cannot.

    Parameters
    ----------
    shape
        Sequences, steps and features of a batch.
    last_only
        Only the last step of a sequence has a label.
    """
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        take_steps(model=model, train=train, precision=precision, shape=shape, last_only=last_only, device=device)
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    if device.type != "cpu":
        return None
    order = {
        "model": model.model_dump(mode="json"),
        "train": train.model_dump(mode="json"),
        "precision": precision.name,
        "shape": shape,
        "last_only": last_only,
        "threads": torch.get_num_threads(),
    }
    words = [sys.executable, "-P", "-m", "klinepred.trial.child"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    try:
        done = subprocess.run(  # noqa: S603  # this interpreter and this package
            words,
            input=json.dumps(order),
            capture_output=True,
            text=True,
            env=env,
            timeout=PATIENCE_S,
            check=True,
            start_new_session=True,  # Ctrl-C is this process's to answer
        )
        return float(json.loads(done.stdout.splitlines()[-1])["peak_mib"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, IndexError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        log.warning("peak memory of %s is not known: %s", precision.name, str(reason).strip().splitlines()[-1][:200])
        return None


def take_steps(
    *,
    model: ModelSettings,
    train: TrainSettings,
    precision: Precision,
    shape: tuple[int, int, int],
    last_only: bool,
    device: torch.device,
) -> None:
    """Two training steps on random numbers of this shape."""
    lane = make_lane(
        precision.name, model=model, train=train, precision=precision, inputs=shape[2], device=device, planned=STEPS
    )
    labelled_BT = torch.ones(shape[:2], dtype=torch.bool, device=device)
    labelled_BT[:, : -1 if last_only else 0] = False
    batch = torch.randn(shape, device=device), torch.randn(shape[:2], device=device), labelled_BT
    for number in range(STEPS):
        lane.step(batch, seed=number)
