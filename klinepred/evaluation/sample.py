"""In: a `Dataset`, forecasts of its rows. Out: `Sample`: the test part as plain arrays, with codes to group by."""

# Shapes: N rows of the dataset, M rows of the test part.

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from klinepred.errors import ModelError
from klinepred.schema import BAR

if TYPE_CHECKING:
    from klinepred.dataset.make import Dataset

STEPS: Final = ("all", "within-session", "across-break")
"""Which steps a score is over; the second and third are the kinds 0 and 1 of `Dataset.kind_N`."""


@dataclass(frozen=True)
class Sample:
    """The rows of a test part, sorted by symbol and ts; every array is [M].

    Attributes
    ----------
    pred_M
        The model's forecast, in units of trailing volatility.
    y_M, raw_M
        What the network learned (raw or relative) and the raw target, same units.
    return_M
        Raw log return from the close of t to the close of t+h.
    kind_M
        0 = within a session, 1 = across a break.
    session_M, bar_M, symbol_M, month_M
        Codes from 0, ascending in time (`symbol_M`: in the order of names). `bar_M` is one per ts and kind of step.
        A row belongs to the session its target ends in: the night before the test part is no session of its own.
    ts_M
        Open of bar t, microseconds UTC.
    sessions, symbols, months
        Names of the codes.
    relative
        Whether `y_M` is relative, so not the same as `raw_M`.
    horizon
        Bars from t to t+h.
    gap_M
        Log return from the close of t to the open of the next bar, NaN where none follows within the session; None =
        no opens are known.
    """

    pred_M: np.ndarray
    y_M: np.ndarray
    raw_M: np.ndarray
    return_M: np.ndarray
    kind_M: np.ndarray
    session_M: np.ndarray
    bar_M: np.ndarray
    symbol_M: np.ndarray
    month_M: np.ndarray
    ts_M: np.ndarray
    sessions: tuple[str, ...]
    symbols: tuple[str, ...]
    months: tuple[str, ...]
    relative: bool
    horizon: int
    gap_M: np.ndarray | None = None

    @property
    def rows(self) -> int:
        """M."""
        return int(self.y_M.size)

    @property
    def target(self) -> str:
        """Name of what the network learned: relative or raw."""
        return "relative" if self.relative else "raw"

    def outcome(self, target: str) -> np.ndarray:
        """`y_M` for the target that was learned, `raw_M` for raw."""
        return self.y_M if target == self.target else self.raw_M

    def of(self, steps: str) -> np.ndarray:
        """Mask [M] of one of `STEPS`."""
        if steps == "all":
            return np.ones(self.rows, dtype=bool)
        mask_M: np.ndarray = self.kind_M == STEPS.index(steps) - 1
        return mask_M

    def with_forecast(self, pred_M: np.ndarray) -> Sample:
        """The same rows with another forecast."""
        return replace(self, pred_M=pred_M)


def take_sample(data: Dataset, pred_N: np.ndarray, *, mask_N: np.ndarray, opens: pl.DataFrame | None = None) -> Sample:
    """Cut the rows of `mask_N` out of the dataset, beside their forecasts.

    Parameters
    ----------
    opens
        symbol, ts and open of the bars; a dataset has closes alone.

    Raises
    ------
    ModelError
        A forecast of these rows is not finite.
    """
    pred_M = pred_N[mask_N].astype(np.float64)
    bad = int((~np.isfinite(pred_M)).sum())
    if bad:
        raise ModelError(
            "forecasts of the test part",
            expected="finite numbers",
            got=f"NaN or infinity in {bad} of {pred_M.size} rows",
            do="the training diverged: lower train.lr, or train again with --precision fp32",
        )
    rows = data.rows.filter(pl.Series(mask_N, dtype=pl.Boolean))
    kind_M = data.kind_N[mask_N]
    session_M, sessions = _codes(rows.get_column("label_session"))
    symbol_M, symbols = _codes(rows.get_column("symbol"))
    month_M, months = _codes(rows.get_column("label_session").dt.strftime("%Y-%m"))
    ts_M = rows.get_column("ts").to_physical().to_numpy()
    _, bar_M = np.unique(ts_M * 2 + kind_M, return_inverse=True)
    return Sample(
        pred_M=pred_M,
        y_M=data.y_N[mask_N].astype(np.float64),
        raw_M=data.raw_N[mask_N].astype(np.float64),
        return_M=data.return_N[mask_N],
        kind_M=kind_M,
        session_M=session_M,
        bar_M=bar_M,
        symbol_M=symbol_M,
        month_M=month_M,
        ts_M=ts_M,
        sessions=sessions,
        symbols=symbols,
        months=months,
        relative=data.settings.target == "relative",
        horizon=data.settings.horizon,
        gap_M=None if opens is None else _gaps(rows, opens),
    )


def _gaps(rows: pl.DataFrame, opens: pl.DataFrame) -> np.ndarray:
    nearest = opens.select("symbol", pl.col("ts") - BAR, following="open")
    pairs = rows.select("symbol", "ts", "close").join(nearest, on=["symbol", "ts"], how="left", maintain_order="left")
    gap_M: np.ndarray = (
        pairs.select((pl.col("following") / pl.col("close")).log().cast(pl.Float64)).to_series().to_numpy()
    )
    return gap_M


def _codes(column: pl.Series) -> tuple[np.ndarray, tuple[str, ...]]:
    """Each value's place among the distinct values in ascending order, and those values as text."""
    names: list[str | date | datetime] = column.unique().sort().to_list()
    code_M = column.rank("dense").cast(pl.Int64).to_numpy() - 1
    return code_M, tuple(str(name) for name in names)
