"""In: a dataset, the raw bars. Out: checks that its labels are what the closes say: after t, whole, real."""

# Shapes: N rows of the dataset.

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from klinepred.audit.check import Check, judge
from klinepred.audit.ledger import Ledger
from klinepred.dataset.make import Dataset
from klinepred.dataset.target import QUORUM

Flags = npt.NDArray[np.bool_]


def check_targets(data: Dataset, bars: pl.DataFrame, truth: Ledger) -> list[Check]:
    """Compare rows, returns, units and labels with a recomputation from the raw closes.

    Parameters
    ----------
    bars
        The bars the dataset was made from.
    truth
        `read_ledger(bars, data.rows, …)`.
    """
    return [
        judge(
            "rows are stored bars",
            "target",
            faults=[
                *where(data, truth.place_N < 0, "a row where no bar is stored"),
                *where(data, (truth.place_N >= 0) & (data.rows["close"].to_numpy() != truth.close_N), "another close"),
            ],
            detail=f"{data.rows.height:,} rows",
        ),
        judge(
            "rows have the features' lookback behind them",
            "target",
            faults=where(
                data,
                (truth.bars_N < data.features.lookback_bars) | (truth.sessions_N < data.features.lookback_sessions),
                "a row with less history",
            ),
            detail=f"{data.features.lookback_bars} bars, {data.features.lookback_sessions} sessions",
        ),
        _returns(data, truth),
        _units(data),
        _labels(data, bars),
    ]


def _returns(data: Dataset, truth: Ledger) -> Check:
    """log(close[t+h] / close[t]), only where every bar of t .. t+h is stored."""
    have_N, want_N = np.isfinite(data.return_N), np.isfinite(truth.return_N)
    with np.errstate(invalid="ignore"):
        off_N = have_N & want_N & (np.abs(data.return_N - truth.return_N) > 1e-9)
    ends = data.rows.get_column("label_session").to_physical().fill_null(-1).to_numpy().astype(np.int64)
    return judge(
        "the target starts after t and both its ends are real bars, nothing missing between",
        "target",
        faults=[
            *where(data, have_N & ~want_N, "a target over a bar that is not there"),
            *where(data, off_N, "not the return from the close of t to the close of t+h"),
            *where(data, want_N & ~have_N, "no target though all its bars are stored"),
            *where(data, have_N & want_N & (ends != truth.last_session_N), "a target said to end in another session"),
        ],
        detail=f"{int(want_N.sum()):,} targets over {data.settings.horizon} bars recomputed from raw closes",
    )


def _units(data: Dataset) -> Check:
    """The raw target is the return in units of the trailing volatility."""
    known_N = np.isfinite(data.return_N) & np.isfinite(data.vol_N)
    raw_N = data.raw_N.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        far_N = np.abs(raw_N - data.return_N / data.vol_N) > 1e-5 * (1.0 + np.abs(raw_N))
    return judge(
        "a raw target is its return over the unit of volatility",
        "target",
        faults=[
            *where(data, np.isfinite(raw_N) & ~known_N, "a raw target without a return or a unit"),
            *where(data, known_N & (~np.isfinite(raw_N) | far_N), "another number"),
        ],
        detail=f"{int(known_N.sum()):,} labels",
    )


def _labels(data: Dataset, bars: pl.DataFrame) -> Check:
    """What the network learns: the raw target, or that minus the mean of the universe at the same time."""
    raw_N, y_N = data.raw_N.astype(np.float64), data.y_N.astype(np.float64)
    if data.settings.target == "raw":
        want_N, sure_N = raw_N, np.ones(raw_N.size, dtype=np.bool_)
    else:
        want_N, sure_N = _relative(data, bars, raw_N)
    if data.settings.steps == "within-session":
        want_N = np.where(data.kind_N == 0, want_N, np.nan)
    with np.errstate(invalid="ignore"):
        far_N = np.abs(y_N - want_N) > 1e-4 * (1.0 + np.abs(raw_N))
    return judge(
        f"the network learns the {data.settings.target} target, over the universe alone",
        "target",
        faults=[
            *where(data, sure_N & np.isfinite(y_N) & ~np.isfinite(want_N), "a label where there is none"),
            *where(data, sure_N & np.isfinite(want_N) & (~np.isfinite(y_N) | far_N), "another label"),
        ],
        detail=f"{int((sure_N & np.isfinite(want_N)).sum()):,} labels recomputed",
    )


def _relative(
    data: Dataset, bars: pl.DataFrame, raw_N: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], Flags]:
    """Raw minus the universe's mean, and the rows of whose time every bar is in the dataset: only there it is known."""
    members = list(data.universe)
    rows = data.rows.select("symbol", "ts").with_columns(
        raw=pl.Series(raw_N).fill_nan(None), kind=pl.Series(data.kind_N), member=pl.col("symbol").is_in(members)
    )
    stored = bars.filter(pl.col("symbol").is_in(members)).group_by("ts").agg(_stored=pl.len())
    here = rows.filter("member").group_by("ts").agg(_here=pl.len())
    counted = pl.col("raw").filter("member")
    keys = ["ts", "kind"]
    mean = pl.when(counted.count().over(keys) >= QUORUM).then(counted.mean().over(keys))
    answer = (
        rows.with_columns(want=pl.col("raw") - mean)
        .join(stored, on="ts", how="left", maintain_order="left")
        .join(here, on="ts", how="left", maintain_order="left")
        .select("want", sure=(pl.col("_stored") == pl.col("_here")).fill_null(False))
    )
    return answer.get_column("want").cast(pl.Float64).to_numpy(), answer.get_column("sure").to_numpy()


def where(data: Dataset, bad_N: Flags, what: str) -> list[str]:
    """One line for the rows of a mask, how many and the first; none for an empty mask."""
    if not bad_N.any():
        return []
    symbol, ts = data.rows.select("symbol", "ts").row(int(np.flatnonzero(bad_N)[0]))
    return [f"{what}: {int(bad_N.sum()):,} rows, first {symbol} {ts:%Y-%m-%dT%H:%MZ}"]
