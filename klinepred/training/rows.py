"""In: a dataset, a device. Out: `TrainRows`: the batches of an epoch, gathered by index from one resident matrix."""

# Shapes: N rows, F features, B sequences of a batch, T steps.

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch

from klinepred.dataset.make import Dataset
from klinepred.dataset.sequences import Batch as Rows
from klinepred.dataset.sequences import batches
from klinepred.errors import TrainingError
from klinepred.training.budget import fits_device
from klinepred.training.ranks import ALONE, Ranks

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class TrainRows:
    """The labelled rows of the train part, in the sequences that own one.

    The matrix [N, F] lies on the device where at most half of the free memory holds it, else on the host (in memory or
    mapped from a file), from where each batch goes to the device through pinned memory. A batch is one gather, so
    nothing is copied per window. Several processes divide a batch of `size` sequences each among themselves; what is
    counted in batches is counted in those of all together.

    Raises
    ------
    TrainingError
        No row of the train part has a label.
    """

    def __init__(self, data: Dataset, *, device: torch.device, size: int, seed: int, ranks: Ranks = ALONE) -> None:
        self.device = device
        self.size = size * ranks.world
        self.ranks = ranks
        self.seed = seed
        self.sequences = data.part("train")
        self._labelled_N = data.mask("train")
        if len(self.sequences) == 0:
            raise TrainingError(
                "train part", expected="rows with a label", got="none", do="ingest more history, or move train_end"
            )
        clip = data.settings.label_clip
        label_N = np.clip(np.where(self._labelled_N, data.y_N, 0.0), -clip, clip).astype(np.float32)
        x_NF = torch.from_numpy(data.x_NF)
        resident = device.type != "cuda" or fits_device(x_NF.nbytes, free=torch.cuda.mem_get_info(device)[0])
        self._x_NF = x_NF.to(device) if resident else x_NF
        self._label_N = torch.from_numpy(label_N).to(device)

    @property
    def steps(self) -> int:
        """Batches of an epoch, the last partial one included."""
        return -(-len(self.sequences) // self.size)

    def epoch(self, number: int, *, skip: int = 0) -> Iterator[tuple[Batch, int]]:
        """Batches of epoch `number` (from 0) after the first `skip`, each with its count of labelled rows.

        Of a batch that several processes divide, this process's sequences and the count of all of them. The order
        depends on the seed and the epoch alone.
        """
        for whole in self._batches(number, skip=skip):
            labels = int((whole.own_BT & self._labelled_N[whole.rows_BT]).sum())
            batch = whole if self.ranks.alone else self._share(whole)
            labelled_BT = batch.own_BT & self._labelled_N[batch.rows_BT]
            rows_BT = torch.from_numpy(batch.rows_BT)
            x_BTF = self._x_NF[rows_BT.to(self._x_NF.device)]
            if x_BTF.device.type != self.device.type:
                x_BTF = x_BTF.pin_memory().to(self.device, non_blocking=True)
            y_BT = self._label_N[rows_BT.to(self.device)]
            yield (x_BTF, y_BT, torch.from_numpy(labelled_BT).to(self.device)), labels

    def batch_rows(self, number: int, position: int) -> Rows:
        """The rows of batch `position` (from 0) of epoch `number`, as the dataset numbers them."""
        return next(self._batches(number, skip=position))

    def _share(self, whole: Rows) -> Rows:
        """This process's part; where there are fewer sequences than processes, one whose rows nobody counts twice."""
        count = len(whole.rows_BT)
        first, end = (count * edge // self.ranks.world for edge in (self.ranks.rank, self.ranks.rank + 1))
        if first < end:
            return Rows(whole.rows_BT[first:end], whole.own_BT[first:end])
        return Rows(whole.rows_BT[:1], np.zeros_like(whole.own_BT[:1]))

    def _batches(self, number: int, *, skip: int) -> Iterator[Rows]:
        order_S = np.random.default_rng([self.seed, number]).permutation(len(self.sequences))
        return islice(batches(self.sequences, size=self.size, order=order_S), skip, None)
