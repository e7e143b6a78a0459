"""In: values by session, of then and of now. Out: how far their distributions are apart, and how far chance takes them.

The population stability index of two distributions over B bins is the sum of (p - q) ln(p / q): Jeffreys' divergence
(Jeffreys 1946; Kullback and Leibler 1951). Bins are tenths of the reference; below 0.1 is called stable, above 0.25 a
shift that asks for another model (Siddiqi 2006, Credit Risk Scorecards). Without any drift its expectation is about
(B - 1) (1 / n + 1 / m) for n and m independent rows (Yurdakul and Naranjo 2020, Statistical properties of the
population stability index). Bars are not independent: those of a session move together, and features look back over
many sessions. So what chance does is measured on the reference itself, see `compare`.

Shapes: N rows, S sessions, B bins, W windows, F columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

BINS: Final = 10
MODERATE: Final = 0.1
SHIFTED: Final = 0.25
"""Siddiqi's thresholds."""
MARGIN: Final = 2.0
"""The largest of a few windows is no bound; this much above it is. Set on the simulator (docs/prediction.md)."""


@dataclass(frozen=True)
class Shift:
    """How far one column has moved.

    Attributes
    ----------
    psi
        Of the rows of now against the reference.
    floor
        (B - 1) (1 / n + 1 / m), as if rows were independent.
    noise
        Mean index of as many successive sessions of the reference against the rest of it: chance, clustering included.
    chance
        How far chance takes the index at most, among all the columns looked at.
    """

    psi: float
    floor: float
    noise: float
    chance: float

    @property
    def limit(self) -> float:
        """What the index must exceed to be drift."""
        return max(SHIFTED, self.chance)

    @property
    def word(self) -> str:
        """drifted or moderate, by Siddiqi's thresholds, where it is beyond chance; else stable."""
        if self.psi > self.limit:
            return "drifted"
        return "moderate" if self.psi > max(MODERATE, self.chance) else "stable"


def inner_edges(reference_N: np.ndarray, *, bins: int = BINS) -> np.ndarray:
    """The quantiles that cut a reference into `bins` equal parts, ascending; fewer where values repeat."""
    levels = np.arange(1, bins) / bins
    edges: np.ndarray = np.unique(np.quantile(reference_N.astype(np.float64), levels, method="higher"))
    return edges


def session_counts(x_N: np.ndarray, session_N: np.ndarray, edges: np.ndarray, *, sessions: int) -> np.ndarray:
    """Rows of each session in each bin, [S, B] Float64; a value on an edge belongs to the bin above it.

    `session_N` holds codes 0..S-1.
    """
    size = edges.size + 1
    bin_N = np.searchsorted(edges, x_N, side="right")
    counts = np.bincount(session_N.astype(np.int64) * size + bin_N, minlength=sessions * size)
    return counts.reshape(sessions, size).astype(np.float64)


def psi(live_XB: np.ndarray, reference_XB: np.ndarray) -> np.ndarray:
    """The index of counts against counts over the last axis, [X].

    Half a row is added to every bin, so that an empty one has a logarithm (Jeffreys' prior).
    """
    live_XB, reference_XB = live_XB + 0.5, reference_XB + 0.5
    p_XB = live_XB / live_XB.sum(axis=-1, keepdims=True)
    q_XB = reference_XB / reference_XB.sum(axis=-1, keepdims=True)
    index_X: np.ndarray = ((p_XB - q_XB) * np.log(p_XB / q_XB)).sum(axis=-1)
    return index_X


def windows_psi(counts_SB: np.ndarray, *, length: int) -> np.ndarray:
    """The index of every run of `length` successive sessions against all others, [W]."""
    total_B = counts_SB.sum(axis=0)
    upto_SB = np.concatenate([np.zeros((1, total_B.size)), np.cumsum(counts_SB, axis=0)])
    window_WB = upto_SB[length:] - upto_SB[:-length]
    return psi(window_WB, total_B - window_WB)


def compare(
    live: tuple[np.ndarray, np.ndarray], reference: tuple[np.ndarray, np.ndarray], *, margin: float = MARGIN
) -> list[Shift]:
    """How far each of F columns has moved from the reference.

    Chance is what the reference shows within itself: every run of as many successive sessions as there are of now,
    against the rest of the reference. It has the clustering, the memory of the features and the wandering of the
    market in it. Of each such run the column that stands out most, as a multiple of its own mean, is noted; the
    largest of these multiples, times `margin`, is how far a column may stand out by chance among F columns looked at.

    Parameters
    ----------
    live, reference
        Values [N, F] and session codes [N] (0, 1, 2 … in time order, all present) of now and of then; the reference
        has at least twice as many sessions.
    """
    (x_MF, session_M), (x_NF, session_N) = live, reference
    length, sessions = int(session_M.max()) + 1, int(session_N.max()) + 1
    found, noise, windows = [], [], []
    for column in range(x_NF.shape[1]):
        edges = inner_edges(x_NF[:, column])
        now_SB = session_counts(x_MF[:, column], session_M, edges, sessions=length)
        then_SB = session_counts(x_NF[:, column], session_N, edges, sessions=sessions)
        floor = edges.size * (1.0 / x_MF.shape[0] + 1.0 / x_NF.shape[0])
        index_W = windows_psi(then_SB, length=length)
        found.append((float(psi(now_SB.sum(axis=0), then_SB.sum(axis=0))), floor))
        noise.append(max(float(index_W.mean()), floor, 1e-12))
        windows.append(index_W)
    multiple = float((np.stack(windows) / np.array(noise)[:, None]).max()) * margin if windows else 0.0
    return [
        Shift(psi=value, floor=floor, noise=mean, chance=multiple * mean)
        for (value, floor), mean in zip(found, noise, strict=True)
    ]
