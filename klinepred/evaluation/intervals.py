"""In: a `Sample`, intervals and P(up) of the raw return. Out: `IntervalScore`: do they hold as often as they say?"""

# Shapes: M rows of the test part.

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from klinepred.evaluation.sample import STEPS, Sample
from klinepred.metrics import coverage, pinball

BINS: Final = 10


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
    brier: float
    brier_base: float
    reliability: tuple[tuple[float, float, int], ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values; NaN stays NaN."""
        return asdict(self)


def score_intervals(
    sample: Sample, *, lo_M: np.ndarray, hi_M: np.ndarray, up_M: np.ndarray
) -> tuple[IntervalScore, ...]:
    """Score for all steps and each kind of step that has calibrated rows; rows without an interval are left out."""
    out = []
    for steps in STEPS:
        mask_M = sample.of(steps) & np.isfinite(lo_M) & np.isfinite(hi_M) & np.isfinite(up_M)
        if mask_M.any():
            out.append(_score(steps, sample.raw_M[mask_M], lo_M[mask_M], hi_M[mask_M], up_M[mask_M]))
    return tuple(out)


def _score(steps: str, raw: np.ndarray, lo: np.ndarray, hi: np.ndarray, up: np.ndarray) -> IntervalScore:
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
        brier=float(np.mean((up - rose) ** 2)),
        brier_base=share * (1.0 - share),
        reliability=tuple(
            (float(up[part].mean()), float(rose[part].mean()), int(part.size))
            for part in np.array_split(np.argsort(up, kind="stable"), BINS)
            if part.size
        ),
    )
