"""In: float32 gradients, weights, updates. Out: the shares of them that fp16 would lose."""

# Numbers of fp16 (IEEE 754 binary16): largest 65,504; smallest normal 2^-14; smallest of all 2^-24; ulp of 1 is 2^-10.

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

SMALLEST_NORMAL: Final = 2.0**-14
"""Below it fp16 has fewer than 11 significant bits, fewer with every halving."""


def below_normal_share(gradients: Sequence[torch.Tensor]) -> float:
    """Share of the non-zero entries that lie below fp16's normal numbers."""
    low = torch.stack([((g != 0) & (g.abs() < SMALLEST_NORMAL)).sum() for g in gradients]).sum()
    return _share(low, gradients)


def flushed_share(gradients: Sequence[torch.Tensor], *, exact: Sequence[torch.Tensor]) -> float:
    """Share of the entries that are not 0 in `exact` and exactly 0 in `gradients`."""
    lost = torch.stack([((e != 0) & (g == 0)).sum() for g, e in zip(gradients, exact, strict=True)]).sum()
    return _share(lost, exact)


def lost_updates(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> float:
    """Share of the changed weights that would not have changed if they were kept in fp16.

    An update is lost where it is below half the distance from the weight to its neighbour in fp16, such as
    0.001 x 0.2 added to 0.5: the sum rounds back to what it was.

    Parameters
    ----------
    before, after
        The weights around one optimiser step, float32.
    """
    lost, moved = 0, 0
    for old, new in zip(before, after, strict=True):
        kept = old.half()
        update = new - old
        stuck = (kept.float() + update).half() == kept
        changed = update != 0
        lost += int((stuck & changed).sum())
        moved += int(changed.sum())
    return lost / moved if moved else 0.0


def _share(lost: torch.Tensor, of: Sequence[torch.Tensor]) -> float:
    count = sum(int((tensor != 0).sum()) for tensor in of)
    return int(lost) / count if count else 0.0
