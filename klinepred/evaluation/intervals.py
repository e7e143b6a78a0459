"""In: a `Sample`, intervals and P(up) of the raw return. Out: `IntervalScore`: do they hold as often as they say?"""

# Shapes: M rows of the test part.

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from klinepred.evaluation.sample import STEPS, Sample
from klinepred.metrics import coverage, pinball
from klinepred.model.calibration import Calibration

BINS: Final = 10
LEVELS: Final = tuple((number + 0.5) / 20 for number in range(20))
"""Quantiles by which the whole distribution is scored."""


@dataclass(frozen=True)
class IntervalScore:
    """Quality of the 80 % interval and of P(up), both of the raw return, over one selection of the test part.

    Attributes
    ----------
    coverage, below, above
        Share of outcomes inside (should be 0.8), under and over the interval (should be 0.1 each).
    width
        Mean width in units of trailing volatility.
    pinball_lo, pinball_hi
        Pinball losses of the two ends as 10 % and 90 % quantiles, same units.
    crps, crps_base
        Continuous ranked probability score of the whole forecast distribution, same units: twice the mean pinball loss
        of 20 evenly spaced quantiles (Gneiting and Raftery 2007, Strictly Proper Scoring Rules, section 4.2); and of
        the same distribution without the forecast. NaN where it was not asked for.
    brier, brier_base
        Mean squared error of P(up), and of the constant forecast that knows how often these outcomes were up.
    reliability
        (mean P(up), share up, rows) in tenths of the rows by P(up).
    """

    steps: str
    rows: int
    coverage: float
    below: float
    above: float
    width: float
    pinball_lo: float
    pinball_hi: float
    crps: float
    crps_base: float
    brier: float
    brier_base: float
    reliability: tuple[tuple[float, float, int], ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values; NaN stays NaN."""
        return asdict(self)


def score_distribution(sample: Sample, calibration: Calibration) -> np.ndarray:
    """CRPS of each row's raw return, with the forecast and without it, [M, 2]; NaN for a kind not calibrated."""
    out_M2 = np.zeros((sample.rows, 2))
    for column, pred_M in enumerate((sample.pred_M, np.zeros(sample.rows))):
        for level in LEVELS:
            miss_M = sample.raw_M - calibration.quantile(pred_M, sample.kind_M, level=level)
            out_M2[:, column] += 2.0 * np.maximum(level * miss_M, (level - 1.0) * miss_M) / len(LEVELS)
    return out_M2


def score_intervals(
    sample: Sample, *, lo_M: np.ndarray, hi_M: np.ndarray, up_M: np.ndarray, crps_M2: np.ndarray | None = None
) -> tuple[IntervalScore, ...]:
    """Score for all steps and each kind of step that has calibrated rows; rows without an interval are left out.

    `crps_M2` is what `score_distribution` gives.
    """
    out = []
    crps_M2 = np.full((sample.rows, 2), np.nan) if crps_M2 is None else crps_M2
    for steps in STEPS:
        mask_M = sample.of(steps) & np.isfinite(lo_M) & np.isfinite(hi_M) & np.isfinite(up_M)
        if mask_M.any():
            out.append(_score(steps, sample.raw_M[mask_M], lo_M[mask_M], hi_M[mask_M], up_M[mask_M], crps_M2[mask_M]))
    return tuple(out)


def _score(
    steps: str, raw: np.ndarray, lo: np.ndarray, hi: np.ndarray, up: np.ndarray, crps: np.ndarray
) -> IntervalScore:
    rose = (raw > 0.0).astype(np.float64)
    share = float(rose.mean())
    return IntervalScore(
        steps=steps,
        rows=int(raw.size),
        coverage=coverage(lo, hi, raw),
        below=float(np.mean(raw < lo)),
        above=float(np.mean(raw > hi)),
        width=float(np.mean(hi - lo)),
        pinball_lo=pinball(lo, raw, level=0.1),
        pinball_hi=pinball(hi, raw, level=0.9),
        crps=float(crps[:, 0].mean()),
        crps_base=float(crps[:, 1].mean()),
        brier=float(np.mean((up - rose) ** 2)),
        brier_base=share * (1.0 - share),
        reliability=tuple(
            (float(up[part].mean()), float(rose[part].mean()), int(part.size))
            for part in np.array_split(np.argsort(up, kind="stable"), BINS)
            if part.size
        ),
    )
