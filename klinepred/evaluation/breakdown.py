"""In: a `Sample`, its profits. Out: the test part by session, symbol, month and time of day, as small frames."""

# Shapes: M rows of the test part, G groups.

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from klinepred.dataset.target import WITHIN
from klinepred.evaluation.money import Money
from klinepred.evaluation.sample import Sample
from klinepred.metrics import group_ic
from klinepred.schema import BAR_US


def by_session(sample: Sample, money: Sequence[Money]) -> pl.DataFrame:
    """One row per session: `session` (text), as `_by`, and the profits of the positions entered as early as can be had
    and one bar late, `gross_bps` … (Float64, basis points of the capital, summed over the session)."""
    first, second = money[1], money[-1]
    return _by(sample, "session", sample.session_M, sample.sessions).with_columns(
        gross_bps=pl.Series(first.gross_S * 1e4),
        net_bps=pl.Series(first.net_S * 1e4),
        late_gross_bps=pl.Series(second.gross_S * 1e4),
        late_net_bps=pl.Series(second.net_S * 1e4),
    )


def by_symbol(sample: Sample) -> pl.DataFrame:
    """One row per symbol: `symbol`, as `_by`."""
    return _by(sample, "symbol", sample.symbol_M, sample.symbols)


def by_month(sample: Sample) -> pl.DataFrame:
    """One row per month of the session: `month` (2026-06), as `_by`."""
    return _by(sample, "month", sample.month_M, sample.months)


def by_time(sample: Sample) -> pl.DataFrame:
    """One row per half hour since the session's first bar: `since_open` (0:30 = the second half hour; `break` = steps
    across one), as `_by`. A bar counts where it opens."""
    within_M = sample.kind_M == WITHIN
    if sample.rows == 0:
        return _by(sample, "since_open", sample.session_M, ())
    open_S = np.full(len(sample.sessions), np.iinfo(np.int64).max)
    np.minimum.at(open_S, sample.session_M[within_M], sample.ts_M[within_M])
    part_M = np.where(within_M, (sample.ts_M - open_S[sample.session_M]) // (6 * BAR_US), -1)
    found, code_M = np.unique(part_M, return_inverse=True)
    names = tuple("break" if part < 0 else f"{part // 2}:{'30' if part % 2 else '00'}" for part in found.tolist())
    return _by(sample, "since_open", code_M, names)


def _by(sample: Sample, column: str, code_M: np.ndarray, names: tuple[str, ...]) -> pl.DataFrame:
    """rows (Int64), ic and rank_ic against the learned target (null where not defined, or under 20 rows), hit_rate (of
    outcomes other than zero; a forecast of zero is half right), mean_return_bps (of the raw log return)."""
    groups = len(names)
    pearson = group_ic(sample.pred_M, sample.y_M, code_M, rank=False, min_size=20)
    spearman = group_ic(sample.pred_M, sample.y_M, code_M, min_size=20)
    moved_M = sample.y_M != 0.0
    agree_M = 0.5 * (1.0 + np.sign(sample.pred_M) * np.sign(sample.y_M)) * moved_M
    moved_G = np.bincount(code_M, weights=moved_M, minlength=groups)
    right_G = np.bincount(code_M, weights=agree_M, minlength=groups)
    size_G = np.bincount(code_M, minlength=groups)
    total_G = np.bincount(code_M, weights=sample.return_M, minlength=groups)
    return pl.DataFrame(
        {
            column: list(names),
            "rows": size_G.astype(np.int64),
            "ic": pearson.ic_G,
            "rank_ic": spearman.ic_G,
            "hit_rate": np.divide(right_G, moved_G, out=np.full(groups, np.nan), where=moved_G > 0),
            "mean_return_bps": 1e4 * total_G / np.maximum(size_G, 1),
        },
        schema_overrides={column: pl.String},
    ).with_columns(pl.col("ic", "rank_ic", "hit_rate").fill_nan(None))
