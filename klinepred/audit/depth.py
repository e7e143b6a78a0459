"""In: nothing. Out: how much an audit does: `FAST` before each training, `THOROUGH` when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Depth:
    """Attributes
    ----------
    rows
        Bars that the features are computed on again and again; of more, windows of as many are taken.
    cuts, futures
        Moments, and other futures after each.
    starts
        Later starts of history from which features are recomputed.
    islands
        Effort of looking at places everywhere instead of at moments, see `klinepred.audit.islands`.
    held_out
        Moments after which all is changed to make the dataset again.
    replays
        Moments at which a prediction is repeated.
    evidence
        A pipeline is audited on as many of its symbols as hold so many bars; a model on all of its own.
    """

    rows: int
    cuts: int
    futures: int
    starts: int
    islands: float
    held_out: int
    replays: int
    evidence: int


FAST: Final = Depth(rows=40_000, cuts=4, futures=2, starts=1, islands=0.1, held_out=2, replays=3, evidence=120_000)
THOROUGH: Final = Depth(
    rows=150_000, cuts=12, futures=5, starts=4, islands=0.5, held_out=3, replays=16, evidence=400_000
)
