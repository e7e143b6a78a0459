"""In: predictions and raw returns of held-out rows. Out: `Calibration`: the interval and P(up) of a raw return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from klinepred.dataset.target import KINDS

LEAST: Final = 100
"""Fewest rows of a kind of step that a calibration is fitted on."""
LEAST_TIMES: Final = 40
"""Fewest distinct times among them: symbols move together, so eleven nights of many symbols are eleven draws."""
LEAST_UNTRAINED: Final = 20
"""Fewest rows of a kind of step that the network was not trained on."""
UNTRAINED: Final = "calibration and validation part, not trained on"
"""What the source of such a kind is called."""
GRID: Final = np.linspace(0.0, 1.0, 401)


@dataclass(frozen=True)
class KindCalibration:
    """One kind of step.

    Attributes
    ----------
    slope
        Raw return per unit of prediction, shrunk towards 0 by its own uncertainty; never negative.
    residual_Q
        Quantiles of raw return - slope x prediction at the levels `GRID`, in volatility units.
    lo, hi
        Residual quantiles that bound the 80 % interval, with the finite-sample correction of split conformal
        prediction (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005).
    rows
        Rows it was fitted on.
    source
        Where they came from, in words.
    """

    slope: float
    residual_Q: np.ndarray
    lo: float
    hi: float
    rows: int
    source: str


@dataclass(frozen=True)
class Calibration:
    """By kind of step (`klinepred.dataset.target.KINDS`); all in units of the step's trailing volatility."""

    kinds: tuple[KindCalibration | None, ...]

    def interval(self, pred_N: np.ndarray, kind_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """80 % interval (lo [N], hi [N]) of the raw return; NaN for a kind that could not be calibrated."""
        lo_N, hi_N = np.full(pred_N.size, np.nan), np.full(pred_N.size, np.nan)
        for code, kind in enumerate(self.kinds):
            if kind is not None:
                here_N = kind_N == code
                middle = kind.slope * pred_N[here_N].astype(np.float64)
                lo_N[here_N], hi_N[here_N] = middle + kind.lo, middle + kind.hi
        return lo_N, hi_N

    def expected(self, pred_N: np.ndarray, kind_N: np.ndarray) -> np.ndarray:
        """The raw return [N] that the prediction stands for (its slope times it); NaN for a kind not calibrated."""
        slope_K = np.array([np.nan if kind is None else kind.slope for kind in self.kinds])
        middle_N: np.ndarray = slope_K[kind_N] * pred_N.astype(np.float64)
        return middle_N

    def quantile(self, pred_N: np.ndarray, kind_N: np.ndarray, *, level: float) -> np.ndarray:
        """The raw return [N] that is not exceeded with probability `level`; NaN for a kind that could not be
        calibrated."""
        out_N = np.full(pred_N.size, np.nan)
        for code, kind in enumerate(self.kinds):
            if kind is not None:
                here_N = kind_N == code
                out_N[here_N] = kind.slope * pred_N[here_N].astype(np.float64) + np.interp(level, GRID, kind.residual_Q)
        return out_N

    def p_up(self, pred_N: np.ndarray, kind_N: np.ndarray) -> np.ndarray:
        """Probability [N] that the raw return is above zero; NaN for a kind that could not be calibrated."""
        up_N = np.full(pred_N.size, np.nan)
        for code, kind in enumerate(self.kinds):
            if kind is not None:
                here_N = kind_N == code
                edge = -kind.slope * pred_N[here_N].astype(np.float64)
                below = np.interp(edge, kind.residual_Q, GRID, left=0.0, right=1.0)
                up_N[here_N] = 1.0 - np.clip(below, 1.0 / (kind.rows + 1), kind.rows / (kind.rows + 1))
        return up_N

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            name: None
            if kind is None
            else {
                "slope": kind.slope,
                "residual": kind.residual_Q.tolist(),
                "lo": kind.lo,
                "hi": kind.hi,
                "rows": kind.rows,
                "source": kind.source,
            }
            for name, kind in zip(KINDS, self.kinds, strict=True)
        }

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Calibration:
        """The inverse of `to_dict`."""
        return cls(
            tuple(
                None
                if table[name] is None
                else KindCalibration(
                    slope=float(table[name]["slope"]),
                    residual_Q=np.asarray(table[name]["residual"], dtype=np.float64),
                    lo=float(table[name]["lo"]),
                    hi=float(table[name]["hi"]),
                    rows=int(table[name]["rows"]),
                    source=str(table[name]["source"]),
                )
                for name in KINDS
            )
        )


def fit_calibration(
    pred_N: np.ndarray,
    raw_N: np.ndarray,
    kind_N: np.ndarray,
    *,
    time_N: np.ndarray,
    held: np.ndarray,
    spare: np.ndarray,
    train: np.ndarray,
    untrained: tuple[int, ...] = (),
) -> Calibration:
    """Fit slope and residual quantiles for each kind of step.

    Parameters
    ----------
    pred_N, raw_N, kind_N
        Predictions and raw targets in volatility units, kind of step; NaN rows are left out.
    time_N
        Stamp of each row: symbols move together, so rows of one time count as one draw in the slope's uncertainty.
    held
        Mask [N] of the calibration part.
    spare
        Mask [N] of the validation part, taken in as well where the calibration part has too few rows of a kind (below
        100, or fewer than 40 distinct times).
    train
        Mask [N] of the train part: where both together are still too few, the spread of the raw target itself there,
        made symmetric (slope 0; neither the network's fit nor the drift of a few nights enters).
    untrained
        Kinds of step that the network was not trained on: nothing is expected of them (prediction 0), and interval and
        probability are those of the raw targets of validation and calibration part together; nothing was chosen by
        them. With fewer than 20 of these: as above.
    """
    known_N = np.isfinite(pred_N) & np.isfinite(raw_N)
    kinds: list[KindCalibration | None] = []
    for code in range(len(KINDS)):
        if code in untrained:
            plain_N = np.isfinite(raw_N) & (kind_N == code) & (held | spare)
            if int(plain_N.sum()) >= LEAST_UNTRAINED:
                kinds.append(_fit(np.zeros(plain_N.sum()), raw_N[plain_N], time_N[plain_N], fit=True, source=UNTRAINED))
                continue
        here_N = known_N & (kind_N == code)
        options = (
            (here_N & held, True, "calibration part"),
            (here_N & (held | spare), True, "calibration and validation part"),
            (np.isfinite(raw_N) & (kind_N == code) & train, False, "train part, unconditional and symmetric"),
        )
        found = next((option for option in options if _enough(time_N[option[0]], held_out=option[1])), None)
        if found is None:
            kinds.append(None)
            continue
        mask_N, fit, source = found
        kinds.append(_fit(pred_N[mask_N], raw_N[mask_N], time_N[mask_N], fit=fit, source=source))
    return Calibration(tuple(kinds))


def _enough(time: np.ndarray, *, held_out: bool) -> bool:
    return time.size >= LEAST and (not held_out or np.unique(time).size >= LEAST_TIMES)


def _fit(pred: np.ndarray, raw: np.ndarray, time: np.ndarray, *, fit: bool, source: str) -> KindCalibration:
    pred, raw = pred.astype(np.float64), raw.astype(np.float64)
    slope = shrunk_slope(pred, raw, time) if fit else 0.0
    residual = np.sort(raw - slope * pred) if fit else np.sort(np.concatenate([raw, -raw]))
    count = residual.size
    low = max(0, int(np.floor(0.1 * (count + 1))) - 1)
    high = min(count - 1, int(np.ceil(0.9 * (count + 1))) - 1)
    return KindCalibration(
        slope=slope,
        residual_Q=np.quantile(residual, GRID),
        lo=float(residual[low]),
        hi=float(residual[high]),
        rows=raw.size,
        source=source,
    )


def shrunk_slope(pred: np.ndarray, raw: np.ndarray, time: np.ndarray) -> float:
    """Least squares through the origin, times 1 - (standard error / slope)^2, not below 0 (James and Stein, 1961).

    All [n], Float64 and finite; `time` is a stamp of any kind. The standard error is clustered by time (Liang and
    Zeger, 1986).
    """
    power = float(pred @ pred)
    if power <= 0.0:
        return 0.0
    slope = float(pred @ raw) / power
    _, group = np.unique(time, return_inverse=True)
    scores = np.bincount(group, weights=pred * (raw - slope * pred))
    variance = float(scores @ scores) / power**2
    if slope <= 0.0 or slope**2 <= variance:
        return 0.0
    return slope * (1.0 - variance / slope**2)
