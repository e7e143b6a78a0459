"""In: a dataset, settings. Out: the memory that training on it will take, part by part, before any of it is taken."""

# Shapes: N rows, F features, B sequences of a batch, T steps.

from __future__ import annotations

from dataclasses import dataclass

import torch

from klinepred.dataset.make import Dataset
from klinepred.dataset.memory import PER_ROW, free_bytes, matrix_bytes
from klinepred.model.lstm import build_network, parameter_count
from klinepred.settings import ModelSettings, TrainSettings


@dataclass(frozen=True)
class Budget:
    """Bytes, by what takes them.

    Attributes
    ----------
    matrix
        Scaled features [N, F].
    rows
        What stands beside them: stamps, closes, targets, parts.
    weights
        Parameters, their gradients, AdamW's two averages, the best ones so far, a moving average if there is one.
    batch
        Inputs of a batch and what the network keeps of it for its gradients; an estimate.
    """

    matrix: int
    rows: int
    weights: int
    batch: int

    @property
    def device(self) -> int:
        """On the device, if the matrix lies there."""
        return self.matrix + self.weights + self.batch


def expected_memory(data: Dataset, model: ModelSettings, train: TrainSettings) -> Budget:
    """What training will take; nothing of it is allocated here."""
    count, features = data.x_NF.shape
    with torch.device("meta"):
        parameters = parameter_count(build_network(model, inputs=features))
    cut = data.part("train")
    longest = int(cut.length_S.max()) if len(cut) else 0
    steps = min(train.batch, len(cut)) * longest
    # per layer and step: four gates, cell, hidden and dropout's output; then the fully connected layers
    kept = model.layers * model.hidden * 7 + 3 * model.head
    return Budget(
        matrix=matrix_bytes(count, features),
        rows=count * PER_ROW,
        weights=parameters * (24 if train.ema else 20),
        batch=4 * steps * (features + kept),
    )


def say_memory(data: Dataset, budget: Budget, device: torch.device) -> str:
    """The budget in words, and whether the matrix will lie on the device."""
    count, features = data.x_NF.shape
    held = (
        f"{count:,} rows x {features} features take {size(budget.matrix)}, {size(budget.rows)} beside them;"
        f" weights and optimiser {size(budget.weights)}, a batch about {size(budget.batch)}"
    )
    if device.type == "cuda":
        free = int(torch.cuda.mem_get_info(device)[0])
        where = "on the device" if fits_device(budget.matrix, free=free) else "in host memory, batches sent over"
        return f"memory: {held}; {size(free)} free on {device}, the features lie {where}"
    left = free_bytes()
    known = "" if left is None else f"; {size(left)} still free"
    return f"memory: {held}{known}"


def fits_device(matrix: int, *, free: int) -> bool:
    """Whether the matrix leaves at least as much again for the network and its batches."""
    return 2 * matrix < free


def size(count: int) -> str:
    """Bytes as people write them."""
    return (
        f"{count / 1e9:.1f} GB"
        if count >= 1e9
        else f"{count / 1e6:.0f} MB"
        if count >= 1e6
        else f"{count / 1e3:.0f} kB"
    )
