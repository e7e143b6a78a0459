"""In: the rows and features the network had. Out: `Baseline`: forecasts of simple models fitted on the train part.

Fitted on train rows, settings chosen on validation rows, labels clipped as the network's are; test rows are only ever
multiplied by what was fitted before. All linear models come from one pass over the train rows (sums of products).
"""

# Shapes: N rows of the dataset, F features, J = F + 1 with the constant, K columns of one model, P penalties.

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from klinepred.features.spec import FeatureSet


log = logging.getLogger("klinepred.evaluation")

NAMES: Final = ("zero", "last return", "ar", "ridge", "hgb")
PENALTIES: Final = (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Per row: the ridge penalty is this times the train rows, on features scaled to spread 1 by the dataset."""
CHUNK: Final = 65_536
RETURN: Final = re.compile(r"price__(?:log_?)?ret(?:urn)?_(\d+)")
"""Features that hold the return of the last so many bars; the one of 1 is the last return."""
LEAST_ROWS: Final = 500
"""Labelled train rows below which only `zero` is fitted."""
TREES: Final = 120
TREE_ROWS: Final = 200_000
"""Gradient boosting sees at most this many train rows and half as many validation rows, drawn at random by the seed."""

THREAD_ROWS: Final = 50_000
"""Fewer rows are boosted on one thread: more of them would mostly wait for each other."""


@dataclass(frozen=True)
class Baseline:
    """Forecasts of one simple model.

    Attributes
    ----------
    pred_M
        Forecasts [M] of the rows asked for, in units of trailing volatility.
    settings
        What was chosen, plain values.
    weights
        Intercept and coefficients by feature name; empty for `zero` and `hgb`.
    """

    name: str
    pred_M: np.ndarray
    settings: dict[str, Any]
    weights: dict[str, float]


def fit_baselines(
    x_NF: np.ndarray,
    y_N: np.ndarray,
    *,
    train_N: np.ndarray,
    validation_N: np.ndarray,
    ask_N: np.ndarray,
    names: Sequence[str],
    last_return: str | None,
    lags: Sequence[str],
    label_clip: float,
    seed: int,
    tree_rows: int = TREE_ROWS,
) -> tuple[Baseline, ...]:
    """Fit `NAMES` and forecast the rows of `ask_N`; a model whose features or train rows are lacking is left out.

    Parameters
    ----------
    x_NF, y_N
        Scaled features and labels; labels are read where `train_N` or `validation_N` hold, nowhere else.
    last_return, lags
        The feature that holds the last one-bar return, and those an autoregression uses.
    label_clip
        Labels are clipped at this many units of volatility for fitting and for choosing.
    tree_rows
        Most train rows that gradient boosting sees; half as many validation rows.
    """
    asked = np.flatnonzero(ask_N)
    train, validation = np.flatnonzero(train_N), np.flatnonzero(validation_N)
    out = [Baseline("zero", np.zeros(asked.size), {}, {})]
    if train.size < LEAST_ROWS or validation.size == 0:
        log.warning(
            "baselines: only zero, since %d train and %d validation rows are too few", train.size, validation.size
        )
        return tuple(out)
    sums_JJ, cross_J = _sums(x_NF, y_N, train, label_clip)
    place = {name: column for column, name in enumerate(names)}
    models: list[tuple[str, list[str], tuple[float, ...]]] = []
    if last_return in place:
        models.append(("last return", [str(last_return)], (0.0,)))
    if any(name in place for name in lags):
        models.append(("ar", [name for name in lags if name in place], PENALTIES))
    models.append(("ridge", list(names), PENALTIES))
    for title, columns, penalties in models:
        picks = np.array([place[name] for name in columns])
        paths_PK = _paths(sums_JJ, cross_J, picks, rows=train.size, penalties=penalties)
        best = _choose(x_NF, y_N, validation, picks, paths_PK, label_clip)
        weights = dict(zip(["intercept", *columns], paths_PK[best].tolist(), strict=True))
        settings = {"features": len(columns), "penalty": penalties[best], "train_rows": int(train.size)}
        pred_M = np.concatenate(
            [_linear(x_NF, rows, picks, paths_PK[best : best + 1])[:, 0] for rows in _chunks(asked)]
        )
        out.append(Baseline(title, pred_M, settings, weights))
    out.append(_boost(x_NF, y_N, train, validation, asked, label_clip=label_clip, seed=seed, most=tree_rows))
    return tuple(out)


def feature_columns(features: FeatureSet) -> tuple[str | None, tuple[str, ...]]:
    """The feature that holds the last one-bar return, and the returns an autoregression may use."""
    spans = {name: int(match[1]) for name in features.names if (match := RETURN.fullmatch(name))}
    return next((name for name, bars in spans.items() if bars == 1), None), tuple(spans)


def _chunks(rows: np.ndarray) -> Iterator[np.ndarray]:
    """At most `CHUNK` row numbers at a time, at least one (perhaps empty) part."""
    return iter(np.array_split(rows, max(1, -(-rows.size // CHUNK))))


def _sums(x_NF: np.ndarray, y_N: np.ndarray, rows: np.ndarray, clip: float) -> tuple[np.ndarray, np.ndarray]:
    """X'X and X'y in float64, a column of ones first; the rows are never copied as a whole."""
    width = x_NF.shape[1] + 1
    sums_JJ, cross_J = np.zeros((width, width)), np.zeros(width)
    for part in _chunks(rows):
        x_CJ = np.ones((part.size, width))
        x_CJ[:, 1:] = x_NF[part]
        sums_JJ += x_CJ.T @ x_CJ
        cross_J += x_CJ.T @ np.clip(y_N[part].astype(np.float64), -clip, clip)
    return sums_JJ, cross_J


def _paths(
    sums_JJ: np.ndarray, cross_J: np.ndarray, picks: np.ndarray, *, rows: int, penalties: Sequence[float]
) -> np.ndarray:
    """Intercept and coefficients [P, K + 1] of ridge for each penalty; the intercept is not penalised.

    Closed form on centred sums; without penalty the solution of least norm, so that equal features do no harm.
    """
    at = picks + 1
    mean_K, mean_y = sums_JJ[0, at] / rows, cross_J[0] / rows
    gram_KK = sums_JJ[np.ix_(at, at)] / rows - np.outer(mean_K, mean_K)
    value_K, vector_KK = np.linalg.eigh(gram_KK)
    moment_K = vector_KK.T @ (cross_J[at] / rows - mean_K * mean_y)
    real_K = value_K > 1e-9 * max(float(value_K.max()), 1e-300)
    out_PK = np.zeros((len(penalties), picks.size + 1))
    for number, penalty in enumerate(penalties):
        out_PK[number, 1:] = vector_KK @ np.where(real_K, moment_K / np.where(real_K, value_K + penalty, 1.0), 0.0)
        out_PK[number, 0] = mean_y - mean_K @ out_PK[number, 1:]
    return out_PK


def _linear(x_NF: np.ndarray, rows: np.ndarray, picks: np.ndarray, weights_PK: np.ndarray) -> np.ndarray:
    pred_CP: np.ndarray = x_NF[np.ix_(rows, picks)].astype(np.float64) @ weights_PK[:, 1:].T + weights_PK[:, 0]
    return pred_CP


def _choose(
    x_NF: np.ndarray, y_N: np.ndarray, rows: np.ndarray, picks: np.ndarray, paths_PK: np.ndarray, clip: float
) -> int:
    """The penalty with the least squared error on validation; the larger of equals."""
    error_P = np.zeros(len(paths_PK))
    for part in _chunks(rows):
        label_C = np.clip(y_N[part].astype(np.float64), -clip, clip)
        error_P += ((label_C[:, None] - _linear(x_NF, part, picks, paths_PK)) ** 2).sum(axis=0)
    return int(np.flatnonzero(error_P == error_P.min())[-1])


def _boost(
    x_NF: np.ndarray,
    y_N: np.ndarray,
    train: np.ndarray,
    validation: np.ndarray,
    asked: np.ndarray,
    *,
    label_clip: float,
    seed: int,
    most: int,
) -> Baseline:
    """Histogram gradient boosting, as many trees as validation liked best (none, that is the mean, included)."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    generator = np.random.default_rng(seed)
    fit, held = _draw(train, most, generator), _draw(validation, most // 2, generator)
    fit_y = np.clip(y_N[fit].astype(np.float64), -label_clip, label_clip)
    held_y = np.clip(y_N[held].astype(np.float64), -label_clip, label_clip)
    model = HistGradientBoostingRegressor(
        max_iter=TREES,
        learning_rate=0.05,
        max_leaf_nodes=15,
        min_samples_leaf=max(20, min(200, fit.size // 50)),
        l2_regularization=1.0,
        early_stopping=False,
        random_state=seed,
    )
    mean = float(fit_y.mean())
    errors = [float(np.mean((held_y - mean) ** 2))]
    with threadpool_limits(limits=1 if fit.size < THREAD_ROWS else None):
        model.fit(x_NF[fit], fit_y)
        errors += [float(np.mean((held_y - pred) ** 2)) for pred in model.staged_predict(x_NF[held])]
    trees = int(np.argmin(errors))
    settings = {"trees": trees, "of": TREES, "train_rows": int(fit.size), "validation_rows": int(held.size)}
    pred_M = np.full(asked.size, mean)
    if trees and asked.size:
        stages = (
            next(pred for number, pred in enumerate(model.staged_predict(x_NF[part]), 1) if number == trees)
            for part in _chunks(asked)
        )
        pred_M = np.concatenate(list(stages))
    return Baseline("hgb", pred_M, settings, {})


def _draw(rows: np.ndarray, most: int, generator: np.random.Generator) -> np.ndarray:
    """At most `most` of the row numbers, in order."""
    return rows if rows.size <= most else np.sort(generator.choice(rows, size=most, replace=False))
