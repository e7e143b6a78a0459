"""In: a sound dataset stage. Out: the same with one leak each: in targets, split, scaler, inputs, sequences."""

# None of this is ever trained on: `klinepred audit --self-test` plants it to see whether the checks find it.
# Shapes: N rows, F features, S sequences.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import polars as pl

from klinepred.audit.stages import BuildDataset
from klinepred.calendar import place
from klinepred.dataset.make import Dataset, make_dataset
from klinepred.dataset.scale import fit_scaler
from klinepred.dataset.sequences import Sequences, cut_sequences
from klinepred.dataset.split import CALIBRATION, TEST, TRAIN, VALIDATION
from klinepred.features.build import FeatureFrame
from klinepred.schema import BAR, CALENDAR

Alter = Callable[[FeatureFrame, Dataset], Dataset]
"""(features, the sound dataset of them) to the leaky one."""


def _shifted(data: Dataset, value_N: np.ndarray, by: int) -> np.ndarray:
    """Values of `by` rows before (negative: after) of the same symbol; NaN where there is none."""
    frame = data.rows.select("symbol", value=pl.Series(value_N))
    return frame.select(pl.col("value").shift(by).over("symbol")).to_series().to_numpy()


def _moved_target(by: int) -> Alter:
    def alter(_: FeatureFrame, data: Dataset) -> Dataset:
        return replace(
            data,
            y_N=_shifted(data, data.y_N, by),
            raw_N=_shifted(data, data.raw_N, by),
            return_N=_shifted(data, data.return_N, by),
        )

    return alter


def _early_inputs(_: FeatureFrame, data: Dataset) -> Dataset:
    x_NF = np.column_stack([_shifted(data, column_N, -1) for column_N in data.x_NF.T])
    return replace(data, x_NF=np.ascontiguousarray(np.nan_to_num(x_NF)))


def _next_row_targets(table: FeatureFrame, data: Dataset) -> Dataset:
    """The next stored row counts as the next bar, whatever is missing between."""
    ahead = pl.col("close").log().shift(-data.settings.horizon).over("symbol") - pl.col("close").log()
    return _with_returns(data, table.frame.select("symbol", "ts", _return=ahead))


def _filled_targets(table: FeatureFrame, data: Dataset) -> Dataset:
    """Missing bars are filled with the last close; targets end on them."""
    times = table.frame.select(pl.col("ts").unique())
    full = table.frame.select(pl.col("symbol").unique()).join(times, how="cross").sort("symbol", "ts")
    closes = full.join(
        table.frame.select("symbol", "ts", "close"), on=["symbol", "ts"], how="left", maintain_order="left"
    )
    closes = closes.with_columns(pl.col("close").forward_fill().over("symbol"))
    ahead = pl.col("close").log().shift(-data.settings.horizon).over("symbol") - pl.col("close").log()
    return _with_returns(data, closes.select("symbol", "ts", _return=ahead))


def _with_returns(data: Dataset, returns: pl.DataFrame) -> Dataset:
    """Other returns by symbol and ts where the dataset has none, and labels in keeping with them."""
    other = data.rows.join(returns, on=["symbol", "ts"], how="left", maintain_order="left").get_column("_return")
    fresh_N = ~np.isfinite(data.return_N) & np.isfinite(data.vol_N)
    return_N = np.where(fresh_N, other.to_numpy(), data.return_N)
    raw_N = np.where(fresh_N, return_N / data.vol_N, data.raw_N).astype(np.float32)
    return replace(data, return_N=return_N, raw_N=raw_N, y_N=np.where(fresh_N, raw_N, data.y_N).astype(np.float32))


def _filled_rows(_: FeatureFrame, data: Dataset) -> Dataset:
    """One row more, of a bar that nobody delivered."""
    missing = (pl.col("session") == pl.col("session").shift(-1)) & (pl.col("ts").diff().shift(-1) > BAR)
    spot = int(data.rows.select(missing.arg_true()).item(0, 0))
    pick_N = np.insert(np.arange(data.rows.height), spot + 1, spot)
    ts = data.rows.get_column("ts")[pick_N] + pl.Series(np.arange(pick_N.size) == spot + 1).cast(
        pl.Int64
    ) * pl.duration(minutes=5)
    return _picked(data, pick_N, rows=data.rows[pick_N].with_columns(ts=ts))


def _twice(_: FeatureFrame, data: Dataset) -> Dataset:
    """Rows repeated, as oversampling before the split leaves them: the copies in the validation part."""
    copies = np.flatnonzero(data.part_N == TRAIN)[-30:]
    data = _picked(data, np.concatenate([np.arange(data.rows.height), copies]))
    part_N = data.part_N.copy()
    part_N[-copies.size :] = VALIDATION
    return replace(data, part_N=part_N)


def _picked(data: Dataset, pick_N: np.ndarray, *, rows: pl.DataFrame | None = None) -> Dataset:
    names = ("x_NF", "y_N", "raw_N", "return_N", "vol_N", "kind_N", "part_N")
    arrays: dict[str, Any] = {name: getattr(data, name)[pick_N] for name in names}
    return replace(data, **arrays, rows=data.rows[pick_N] if rows is None else rows)


def _random_rows(_: FeatureFrame, data: Dataset) -> Dataset:
    part_N = data.part_N.copy()
    labelled = np.flatnonzero(part_N >= 0)
    part_N[labelled] = np.random.default_rng(1).permutation(part_N[labelled])
    return replace(data, part_N=part_N)


def _random_sessions(_: FeatureFrame, data: Dataset) -> Dataset:
    """Whole sessions drawn at random."""
    day_N = data.rows.get_column("label_session").rank("dense").fill_null(0).to_numpy()
    rng = np.random.default_rng(1)
    part_D = rng.choice(4, size=int(day_N.max()) + 1, p=[0.7, 0.1, 0.05, 0.15])
    return replace(data, part_N=np.where(data.part_N >= 0, part_D[day_N], -1).astype(np.int8))


def _unpurged(_: FeatureFrame, data: Dataset) -> Dataset:
    """The part of a label is that of its bar; where the label ends does not matter."""
    part_N = data.rows.select(data.split.part_of(pl.col("session"))).to_series().to_numpy()
    return replace(data, part_N=np.where(np.isfinite(data.raw_N), part_N, -1).astype(np.int8))


def _embargo_forgotten(table: FeatureFrame, data: Dataset) -> Dataset:
    open_ = make_dataset(table, data.settings, scaler=data.scaler, split=replace(data.split, embargo=0))
    return replace(open_, split=data.split)


def _best_border(table: FeatureFrame, data: Dataset) -> Dataset:
    """Train ends where the days after it flatter."""
    days = data.rows.get_column("label_session").drop_nulls().unique().sort()
    ends = [day for day in days if data.rows.get_column("label_session")[0] < day < data.split.validation_end]
    later = {end: data.rows.get_column("label_session").fill_null(end).to_numpy() > np.datetime64(end) for end in ends}
    best = max(ends, key=lambda end: float(np.nansum(data.return_N[later[end]])))
    return make_dataset(table, data.settings, split=replace(data.split, train_end=best))


def _scaled_on(*parts: int) -> Alter:
    def alter(table: FeatureFrame, data: Dataset) -> Dataset:
        rows = data.rows.join(table.frame, on=["symbol", "ts"], how="left", maintain_order="left")
        wanted_N = data.rows.select(data.split.part_of(pl.col("session")).is_in(parts)).to_series()
        scaler = fit_scaler(rows.filter(wanted_N), data.scaler.names, clip=data.scaler.clip)
        return replace(data, scaler=scaler, x_NF=scaler.apply(rows))

    return alter


def _own_step_unit(_: FeatureFrame, data: Dataset) -> Dataset:
    """The unit of volatility has seen the step that it measures."""
    return _in_units(data, _shifted(data, data.vol_N, -1))


def _whole_unit(_: FeatureFrame, data: Dataset) -> Dataset:
    """One unit for all: the deviation of all returns."""
    return _in_units(data, np.full_like(data.vol_N, np.nanstd(data.return_N)))


def _in_units(data: Dataset, vol_N: np.ndarray) -> Dataset:
    """Labels in keeping with another unit."""
    raw_N = (data.return_N / vol_N).astype(np.float32)
    rows = data.rows.select("ts", raw=pl.Series(raw_N).fill_nan(None), kind=pl.Series(data.kind_N))
    mean = pl.col("raw").mean().over("ts", "kind")
    y_N = rows.select((pl.col("raw") - mean).cast(pl.Float32)).to_series().to_numpy()
    return replace(
        data, vol_N=vol_N.astype(np.float32), raw_N=raw_N, y_N=np.where(np.isfinite(data.y_N), y_N, data.y_N)
    )


def _winsorised(_: FeatureFrame, data: Dataset) -> Dataset:
    """Labels bounded by quantiles of the whole file."""
    low, high = np.nanquantile(data.y_N, [0.01, 0.99])
    return replace(data, y_N=np.clip(data.y_N, low, high))


def _demeaned(_: FeatureFrame, data: Dataset) -> Dataset:
    """Relative to the mean over all times instead of that of its own time."""
    return replace(data, y_N=(data.raw_N - np.nanmean(data.raw_N)).astype(np.float32))


def _windows(data: Dataset, *, symbols: bool = True, gaps: bool = True) -> Dataset:
    """Cut into windows that mind the borders of symbols, or gaps, or not."""
    clocks = pl.col("symbol").replace_strict(data.calendars, return_dtype=pl.String)
    slots = place(data.rows.select("symbol", "ts", clocks.alias(CALENDAR))).get_column("slot")
    row_N = np.arange(data.rows.height)
    settings = data.settings.model_copy(update={"cut": "window", "window": 40})
    cut = cut_sequences(
        data.rows.get_column("symbol").rle_id().to_numpy() if symbols else np.zeros_like(row_N),
        slots.to_numpy() if gaps else row_N,
        data.rows.get_column("session").to_physical().to_numpy(),
        settings,
    )
    return replace(data, settings=settings, sequences=cut)


def _one_row_late(_: FeatureFrame, data: Dataset) -> Dataset:
    """Windows that end a bar after the row whose label they learn."""
    data = _windows(data)
    cut = data.sequences
    return replace(data, sequences=Sequences(cut.start_S, cut.length_S, cut.lead_S - 1))


def _filled(*, backward: bool) -> Alter:
    """Masked values filled with the symbol's next (or last) known ones."""

    def alter(table: FeatureFrame, data: Dataset) -> Dataset:
        known = pl.col(*table.features.names)
        frame = table.frame.with_columns((known.backward_fill() if backward else known.forward_fill()).over("symbol"))
        rows = data.rows.select("symbol", "ts").join(frame, on=["symbol", "ts"], how="left", maintain_order="left")
        return replace(data, x_NF=data.scaler.apply(rows))

    return alter


LEAKY_DATASETS: Final[dict[str, Alter]] = {
    "target shifted one bar back": _moved_target(1),
    "target shifted one bar ahead": _moved_target(-1),
    "label across a gap": _next_row_targets,
    "forward-filled bars as targets": _filled_targets,
    "forward-filled bars as rows": _filled_rows,
    "unit of volatility with the target's own step in it": _own_step_unit,
    "unit of volatility of the whole file": _whole_unit,
    "labels bounded by quantiles of the whole file": _winsorised,
    "relative to the mean of all times": _demeaned,
    "random split of rows": _random_rows,
    "random split of sessions": _random_sessions,
    "labels over the border of a part, no purge": _unpurged,
    "embargo forgotten": _embargo_forgotten,
    "border of the test part chosen by its outcome": _best_border,
    "rows repeated before the split": _twice,
    "scaler on all rows": _scaled_on(TRAIN, VALIDATION, CALIBRATION, TEST),
    "scaler on train and validation rows": _scaled_on(TRAIN, VALIDATION),
    "inputs one bar early": _early_inputs,
    "masked inputs filled with the next known value": _filled(backward=True),
    "masked inputs filled with the last known value": _filled(backward=False),
    "windows across symbols": lambda _, data: _windows(data, symbols=False, gaps=False),
    "windows across gaps": lambda _, data: _windows(data, gaps=False),
    "windows that end after their label's row": _one_row_late,
}
"""By what is wrong."""


def altered(sound: BuildDataset, alter: Alter) -> BuildDataset:
    """The dataset stage with a leak in it."""
    return lambda table: alter(table, sound(table))
