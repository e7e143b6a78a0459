"""In: a bundle, its dataset. Out: by how much the forecast suffers when one feature after the other is shuffled."""

# Shapes: N rows of the dataset, K rows that are looked at, S sequences, F features.

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

import numpy as np

from klinepred.dataset.make import Dataset
from klinepred.dataset.sequences import Sequences
from klinepred.headway import stepwise
from klinepred.metrics import ic as ic_of
from klinepred.model.bundle import ModelBundle
from klinepred.model.forward import forward_rows

log = logging.getLogger("klinepred.evaluation")

BUDGET: Final = 1.5e12
"""Floating-point operations all passes may cost together: half a minute on two cores."""
MOST: Final = 20_000
LEAST: Final = 500
"""Labels looked at: at most so many; fewer than the least tell nothing."""


@dataclass(frozen=True)
class Importance:
    """What one feature contributes to the forecast on validation rows (Breiman, Random Forests, 2001, section 10).

    Attributes
    ----------
    error_rise
        Rise of the mean squared error when the feature's values are dealt anew to all rows, as a share of the error.
        Negative where the forecast is better without.
    ic_fall
        Fall of the IC.
    """

    feature: str
    error_rise: float
    ic_fall: float


def weigh_features(bundle: ModelBundle, data: Dataset, *, seed: int, budget: float = BUDGET) -> tuple[Importance, ...]:
    """Every feature, the weightiest first; empty, with a word, where the network is too large for the budget.

    The test part is not opened: the rows are of the validation part. Features that say the same share their weight, so
    that each seems to matter less than both do.

    Parameters
    ----------
    seed
        Of the choice of sequences and of the shuffles; all features are shuffled alike.
    """
    rng = np.random.default_rng(seed)
    names = data.features.names
    cut = _some(data, bundle, rng, budget=budget / (1 + len(names)))
    mask_N = data.mask("validation") & cut.owned(data.y_N.size)
    if int(mask_N.sum()) < LEAST:
        log.info("the importance of features is not computed: the network is too large, or validation too short")
        return ()
    read_N = _read(cut, data.y_N.size)
    place_N = np.cumsum(read_N) - 1
    near = Sequences(place_N[cut.start_S], cut.length_S, cut.lead_S)
    x_KF, ask_K = np.array(data.x_NF[read_N], dtype=np.float32), mask_N[read_N]
    clip = data.settings.label_clip
    y_K = np.clip(data.y_N[read_N][ask_K].astype(np.float64), -clip, clip)
    order_K = rng.permutation(x_KF.shape[0])

    def score() -> tuple[float, float]:
        pred_K = forward_rows(bundle.network, x_KF, near)[ask_K].astype(np.float64)
        return float(np.mean((pred_K - y_K) ** 2)), float(ic_of(pred_K, y_K))

    error, ic = score()
    found = []
    for column, name in enumerate(stepwise(names, "importance of features")):
        kept_K = x_KF[:, column].copy()
        x_KF[:, column] = kept_K[order_K]
        worse, less = score()
        x_KF[:, column] = kept_K
        found.append(Importance(name, worse / error - 1.0, ic - less))
    return tuple(sorted(found, key=lambda one: -one.error_rise))


def _some(data: Dataset, bundle: ModelBundle, rng: np.random.Generator, *, budget: float) -> Sequences:
    """Sequences with validation labels, drawn until the labels or the budget of one pass are spent."""
    cut = data.sequences.covering(data.mask("validation"))
    sizes = {name: parameter.numel() for name, parameter in bundle.network.named_parameters()}
    recurrent = sum(size for name, size in sizes.items() if "lstm." in name)
    rest = sum(sizes.values()) - recurrent
    order_S = rng.permutation(len(cut))
    cost_S = 2.0 * (recurrent * cut.length_S + rest * (1 if bundle.model.flatten else cut.length_S))[order_S]
    labels_S = (cut.length_S - cut.lead_S)[order_S]
    fits_S = (np.cumsum(cost_S) <= budget) & (np.cumsum(labels_S) <= MOST)
    kept_S = np.sort(order_S[fits_S])
    return Sequences(cut.start_S[kept_S], cut.length_S[kept_S], cut.lead_S[kept_S])


def _read(cut: Sequences, rows: int) -> np.ndarray:
    """Mask [N] of the rows that some sequence reads, its lead included."""
    whole = Sequences(cut.start_S, cut.length_S, np.zeros_like(cut.lead_S))
    return whole.owned(rows)
