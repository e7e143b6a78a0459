"""In: the number of successful optimiser steps. Out: the learning rate; a pure function, nothing is remembered."""

from __future__ import annotations

import math

from klinepred.settings import TrainSettings


def learning_rate(step: int, *, planned: int, train: TrainSettings) -> float:
    """Learning rate of the step that follows `step` successful ones.

    Constant, or a linear warm-up over the first `train.warmup` of the planned steps and then half a cosine down to 0
    (Loshchilov and Hutter, SGDR, 2017, one cycle). A step that the GradScaler skipped does not count.

    Parameters
    ----------
    step
        Successful steps so far, from 0.
    planned
        Steps of the whole run; beyond them the rate stays at 0 (cosine).
    """
    if train.schedule == "constant":
        return train.lr
    rise = min(max(1, round(train.warmup * planned)), planned) if train.warmup else 0
    if step < rise:
        return train.lr * (step + 1) / rise
    share = (step - rise) / max(1, planned - rise)
    return train.lr * 0.5 * (1.0 + math.cos(math.pi * min(1.0, share)))
