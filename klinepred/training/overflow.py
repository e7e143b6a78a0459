"""In: a batch whose gradients are not finite. Out: `Overflow`: why, in which rows, at which feature."""

# Shapes: B sequences of a batch, T steps, F features, R rows of the batch (B x T without repeated ones).

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

import numpy as np
import polars as pl
import torch
from torch import nn

from klinepred.dataset.make import Dataset
from klinepred.dataset.sequences import Batch
from klinepred.errors import TrainingError
from klinepred.paths import open_atomic
from klinepred.training.precision import Precision

Cause = Literal["inputs", "precision", "network"]

ADVICE: Final[dict[Cause, str]] = {
    "inputs": "mend or leave out that feature (klinepred features show), then train again",
    "precision": "go on from the last good weights with --precision bf16 (from fp16) or fp32,"
    " or let --on-overflow fallback do it",
    "network": "go on from the last good weights with a lower --set train.lr",
}


@dataclass(frozen=True)
class Overflow:
    """A batch at fault.

    Attributes
    ----------
    cause
        inputs: a feature is not finite. precision: the same forward pass is finite in float32. network: neither, the
        weights have grown too far.
    symbol, first, last
        The sequence at fault: its symbol, open of its first and last bar.
    feature, value, ts
        The feature that is not finite, or else the most extreme one of that sequence (scaled), and where.
    rows
        Every row of the batch once: symbol, ts, sequence (number in the batch), label, output (float32), finite
        (features and output), then the features as the network read them.
    """

    cause: Cause
    symbol: str
    first: datetime
    last: datetime
    feature: str
    value: float
    ts: datetime
    rows: pl.DataFrame

    def words(self) -> str:
        """Rows and feature in one line."""
        what = "is" if self.cause == "inputs" else "is the most extreme feature:"
        return (
            f"first sequence at fault {self.symbol} {_utc(self.first)} to {_utc(self.last)};"
            f" {self.feature} {what} {self.value:g} at {_utc(self.ts)}"
        )

    def write(self, path: Path) -> None:
        """The rows as Parquet.

        Raises
        ------
        TrainingError
            The disk is full, or the folder cannot be written.
        """
        try:
            with open_atomic(path) as out:
                self.rows.write_parquet(out)
        except OSError as error:
            raise TrainingError(
                f"rows at fault {path}",
                expected="room and permission to write them",
                got=error.strerror or str(error),
                do=f"free space or mend the permissions, and see why they were to be written: {self.words()}",
            ) from error


@torch.no_grad()
def examine(network: nn.Module, data: Dataset, batch: Batch, *, precision: Precision, device: torch.device) -> Overflow:
    """Look for what made the gradients of `batch` infinite; weights, gradients and random state stay as they are.

    Raises
    ------
    ValueError
        The batch is empty.
    """
    x_BTF = torch.from_numpy(data.x_NF[batch.rows_BT])
    training = network.training
    network.eval()
    try:
        exact_BT = _outputs(network, x_BTF.to(device))
        with precision.autocast():
            used_BT = _outputs(network, x_BTF.to(device))
    finally:
        network.train(training)
    repeated_BT = np.zeros(batch.rows_BT.shape, dtype=bool)
    repeated_BT[:, 1:] = batch.rows_BT[:, 1:] == batch.rows_BT[:, :-1]
    sound_BTF = np.isfinite(x_BTF.numpy())
    finite = bool(np.isfinite(np.where(batch.own_BT, exact_BT, 0.0)).all())
    cause: Cause = "network"
    if not sound_BTF.all():
        cause, bad_B = "inputs", ~sound_BTF.all(axis=(1, 2))
    elif precision.dtype is not None and finite:
        cause, bad_B = "precision", ~np.isfinite(np.where(batch.own_BT, used_BT, 0.0)).all(axis=1)
    else:
        bad_B = ~np.isfinite(np.where(batch.own_BT, exact_BT, 0.0)).all(axis=1)
    size_BTF = np.where(sound_BTF, np.abs(x_BTF.numpy()), np.inf)
    if not bad_B.any():  # outputs are finite and gradients are not: the sequence that reaches furthest out
        bad_B = size_BTF.max(axis=(1, 2)) == size_BTF.max()
    at = int(np.flatnonzero(bad_B)[0])
    step, column = np.unravel_index(int(size_BTF[at].argmax()), size_BTF[at].shape)
    stamps = data.rows.select("symbol", "ts")
    symbol, first = stamps.row(int(batch.rows_BT[at, 0]))
    rows_R = batch.rows_BT[~repeated_BT]
    table = stamps[rows_R].with_columns(
        sequence=pl.Series(np.broadcast_to(np.arange(len(exact_BT))[:, None], exact_BT.shape)[~repeated_BT]),
        label=pl.Series(data.y_N[rows_R]),
        output=pl.Series(exact_BT[~repeated_BT]),
        finite=pl.Series((sound_BTF.all(axis=2) & (np.isfinite(used_BT) | ~batch.own_BT))[~repeated_BT]),
    )
    names = data.scaler.names
    features = pl.DataFrame(x_BTF.numpy()[~repeated_BT], schema=list(names), orient="row")
    return Overflow(
        cause=cause,
        symbol=str(symbol),
        first=first,
        last=stamps.row(int(batch.rows_BT[at, -1]))[1],
        feature=str(names[int(column)]),
        value=float(x_BTF[at, int(step), int(column)]),
        ts=stamps.row(int(batch.rows_BT[at, int(step)]))[1],
        rows=pl.concat([table, features], how="horizontal"),
    )


def _outputs(network: nn.Module, x_BTF: torch.Tensor) -> np.ndarray:
    """What the network expects [B, T]; steps that a network for whole windows does not answer are NaN."""
    out: torch.Tensor = network(x_BTF).float()
    return (out if out.dim() == 2 else out[..., 0]).cpu().numpy()


def _utc(stamp: datetime) -> str:
    return f"{stamp:%Y-%m-%dT%H:%MZ}"
