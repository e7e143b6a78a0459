"""In: a device, work that may not fit. Out: the work done; where memory ran out, one message in place of torch's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from klinepred.errors import TrainingError, out_of_memory


@contextmanager
def room_on(device: torch.device) -> Iterator[None]:
    """Around training.

    Raises
    ------
    TrainingError
        The device, or the machine, has no memory left.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        told = out_of_memory(error)
        if told is None:
            raise
        raise TrainingError(
            f"memory of {'this machine' if device.type == 'cpu' else device}",
            expected="room for network, optimiser and a batch",
            got=told,
            do="train with a smaller --set train.batch or a smaller preset, or free memory; --resume last goes on from"
            " the last checkpoint if there is one",
        ) from error
