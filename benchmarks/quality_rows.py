"""In: bars, a pipeline. Out: `Field`: the rows that all in `time_to_quality` learn from and are scored on."""

# Shapes: N rows, F features, V scored rows.

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

import klinepred as kp
from benchmarks.features import make_bars
from benchmarks.forecast_quality import SPLIT
from klinepred import metrics
from klinepred.dataset.make import Dataset, make_dataset
from klinepred.dataset.target import KINDS
from klinepred.settings import Pipeline

WINDOW = 48
"""Bars of a window, for every loop over windows."""
CLIP = 6.0
"""Labels are clipped here, in training and in scoring, for everyone."""


@dataclass(frozen=True)
class Field:
    """One set of features, labels and rows, cut in two ways.

    Attributes
    ----------
    session, window
        The same rows as sequences of sessions and as windows of `WINDOW` bars; they share the matrix of features.
    score_N
        Rows that are scored: labelled validation rows whose step lies within a session and that both cuts own.
    curve_N
        Some of them, for the many points of a curve.
    """

    session: Dataset
    window: Dataset
    score_N: np.ndarray
    curve_N: np.ndarray

    @property
    def learned(self) -> np.ndarray:
        """Mask [N] of the rows that the loops over windows learn from."""
        return self.window.mask("train")


@dataclass(frozen=True)
class Grade:
    """What predictions are worth on some rows: mean squared error and rank IC against labels clipped at `CLIP`."""

    loss: float
    rank_ic: float


def build_field(run: Pipeline, data: Path, *, symbols: int, rows: int, curve_rows: int) -> Field:
    """us101 (simulated bars where it is absent) with the agreed split.

    Parameters
    ----------
    symbols
        How many symbols to take, spread over the list; 0 = all.
    rows, curve_rows
        Most rows to score in full, and on the curve; drawn once, by a fixed seed; 0 = all.
    """
    bars = make_bars(data)
    if symbols:
        names = bars.get_column("symbol").unique().sort()
        bars = bars.filter(
            pl.col("symbol").is_in(names.gather_every(max(1, len(names) // symbols))[:symbols].implode())
        )
    table = kp.build_features(bars.with_columns(pl.col("calendar").cast(pl.Categorical)))
    settings = run.dataset.model_copy(update={"split": SPLIT, "label_clip": CLIP})
    session = make_dataset(table, settings)
    window = make_dataset(table, settings.model_copy(update={"cut": "window", "window": WINDOW}))
    window = replace(window, x_NF=session.x_NF)
    score_N = session.mask("validation") & window.mask("validation") & (session.kind_N == KINDS.index("within"))
    draw = np.random.default_rng(7)
    score_N = _at_most(rows, score_N, draw)
    return Field(session, window, score_N, _at_most(curve_rows, score_N, draw))


def _at_most(rows: int, mask_N: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    found = np.flatnonzero(mask_N)
    if not rows or found.size <= rows:
        return mask_N
    out_N = np.zeros_like(mask_N)
    out_N[draw.choice(found, rows, replace=False)] = True
    return out_N


def grade(field: Field, pred_V: np.ndarray, mask_N: np.ndarray) -> Grade:
    """The scores of everyone's predictions [V] of the rows of a mask, computed here and nowhere else."""
    y_V = np.clip(field.session.y_N[mask_N], -CLIP, CLIP).astype(np.float64)
    pred_V = pred_V.astype(np.float64)
    return Grade(metrics.mse(pred_V, y_V), metrics.rank_ic(pred_V, y_V) if np.ptp(pred_V) > 0.0 else 0.0)


def hand_over(field: Field, folder: Path) -> None:
    """Write what peers need, as .npy: no row of the calibration or the test part is among them."""
    data = field.session
    keep_N = data.rows.get_column("session").to_numpy() <= np.datetime64(SPLIT.validation_end)
    y_N = np.clip(np.where(np.isfinite(data.y_N), data.y_N, 0.0), -CLIP, CLIP).astype(np.float32)
    columns = {
        "x": data.x_NF[keep_N],
        "y": y_N[keep_N],
        "symbol": data.rows.get_column("symbol").rle_id().to_numpy()[keep_N].astype(np.int64),
        "ts": data.rows.get_column("ts").cast(pl.Datetime("us", "UTC")).to_physical().to_numpy()[keep_N],
        "train": field.learned[keep_N],
        "score": field.score_N[keep_N],
        "curve": field.curve_N[keep_N],
    }
    for name, column in columns.items():
        np.save(folder / f"{name}.npy", column, allow_pickle=False)
