"""In: a `FeatureFrame`, settings. Out: `Dataset`: scaled features, targets, parts and sequences, ready for the LSTM."""

# Shapes: N usable rows, F features.

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from klinepred.dataset.memory import fits_memory, free_bytes
from klinepred.dataset.scale import Scaler, fit_scaler
from klinepred.dataset.sequences import Sequences, cut_sequences
from klinepred.dataset.split import PARTS, TRAIN, Split, assign_parts, make_splits, say_removed
from klinepred.dataset.target import QUORUM, add_targets
from klinepred.errors import DatasetError
from klinepred.features.build import FeatureFrame
from klinepred.features.spec import FeatureSet
from klinepred.schema import CALENDAR
from klinepred.settings import DatasetSettings

NEEDED: Final = [
    *("symbol", "ts", "close", "session", "slot", "kind", "vol", "ret", "raw", "y", "first_session", "last_session")
]
"""Of what `add_targets` gives."""


@dataclass(frozen=True)
class Dataset:
    """Everything the LSTM learns from, is graded on, or predicts from.

    Attributes
    ----------
    x_NF
        Features, Float32, C order: scaled by `scaler`, clipped; a masked value is 0.
    y_N
        What the network learns, Float32, in units of trailing volatility, not clipped; NaN = no label.
    raw_N
        The raw (not relative) target in the same units; NaN = none.
    return_N
        The raw log return from the close of t to the close of t+h, Float64; NaN = none.
    vol_N
        The unit: trailing volatility of the kind of step ahead, known at the close of t; NaN = not known yet.
    kind_N
        Int8: 0 = the step ahead lies within a stretch of trading, 1 = it crosses a break (by the calendar).
    part_N
        Int8: index into `PARTS` of the raw target; -1 = none, or purged.
    rows
        symbol, ts, session, close of the N rows, sorted by symbol and ts; label_session is the session in which the
        target ends (null = no target): an overnight target belongs to the session it opens; end_part and removed as
        `klinepred.dataset.split.assign_parts` has them.
    sequences
        All sequences over the N rows; `sequences.covering(data.mask("train"))` are those of a part.
    lacking
        By symbol, bars and sessions of those that have too few for a usable row: (bars, sessions).
    warm_up
        By part, bars that are not usable because too little history lies behind them.
    """

    x_NF: np.ndarray
    y_N: np.ndarray
    raw_N: np.ndarray
    return_N: np.ndarray
    vol_N: np.ndarray
    kind_N: np.ndarray
    part_N: np.ndarray
    rows: pl.DataFrame
    sequences: Sequences
    scaler: Scaler
    split: Split
    features: FeatureSet
    universe: tuple[str, ...]
    calendars: dict[str, str]
    settings: DatasetSettings
    lacking: dict[str, tuple[int, int]]
    warm_up: dict[str, int] = field(default_factory=dict)

    def mask(self, part: str) -> np.ndarray:
        """Rows [N] with a label `y_N` that belongs to `part` and that a sequence owns."""
        labelled_N = (self.part_N == PARTS.index(part)) & np.isfinite(self.y_N)
        return np.asarray(labelled_N & self.sequences.owned(self.part_N.size))

    def spans(self) -> pl.DataFrame:
        """symbol, calendar (text of its Clock), first_session and last_session of its rows, sorted by symbol."""
        spans = self.rows.group_by("symbol").agg(
            first_session=pl.col("session").min(), last_session=pl.col("session").max()
        )
        clocks = pl.DataFrame({"symbol": list(self.calendars), CALENDAR: list(self.calendars.values())})
        return spans.join(clocks, on="symbol").sort("symbol")

    def part(self, part: str) -> Sequences:
        """The sequences that own a labelled row of `part`."""
        return self.sequences.covering(self.mask(part))

    def counts(self) -> dict[str, int]:
        """Labelled rows of each part."""
        return {name: int(self.mask(name).sum()) for name in PARTS}


def make_dataset(
    table: FeatureFrame,
    settings: DatasetSettings,
    *,
    scaler: Scaler | None = None,
    split: Split | None = None,
    fold: int = 1,
    need_rows: bool = True,
    on_disk: bool | None = None,
    folder: Path | None = None,
) -> Dataset:
    """Targets, parts, scaling and sequences from a table of features.

    A row is usable once its symbol has the bars and sessions behind it that the feature set looks back over; rows
    before that are in no sequence. For training leave `scaler` and `split` out: the split is resolved from the
    settings and the scaler fitted on the rows of train sessions only. For evaluating or predicting with a model pass
    the model's own; with `need_rows` false it is no error that no row is usable (`lacking` says why).

    Parameters
    ----------
    fold
        Which fold of the settings' walk-forward, from 1.
    on_disk, folder
        Whether the matrix of features lies in a file, see `klinepred.dataset.memory.new_matrix`; None = where it does
        not fit into the free memory.

    Raises
    ------
    DatasetError
        No usable row, a part without labels, or fewer than five symbols for a relative target.
    """
    names = table.features.names
    clocks = pl.DataFrame(
        {"symbol": list(table.calendars), CALENDAR: list(table.calendars.values())},
        schema={"symbol": pl.String, CALENDAR: pl.String},
    )
    closes = table.frame.select("symbol", "ts", "close").join(clocks, on="symbol", how="left", maintain_order="left")
    if settings.target == "relative" and split is None and len(table.universe) < QUORUM:
        raise DatasetError(
            "relative target",
            expected=f"at least {QUORUM} symbols in the universe",
            got=f"{len(table.universe)}: {', '.join(table.universe)}",
            do="ingest more symbols, or train on raw returns with --set dataset.target=raw",
        )
    frame = add_targets(closes, settings, universe=table.universe) if closes.height else closes
    del closes
    usable, lacking = _usable(frame, table.features) if frame.height else (np.zeros(0, dtype=bool), {})
    if not usable.any() and (need_rows or split is None):
        raise _short(table.features, lacking)
    early = frame.select("session").filter(pl.Series(~usable))
    frame = frame.select(NEEDED).filter(pl.Series(usable))
    training = split is None
    if split is None:
        days = frame.get_column("last_session").drop_nulls().unique().sort().to_list()
        split = choose_fold(make_splits(days, settings.split), fold)
        _refuse_thin_target(frame, settings)
    frame = assign_parts(frame, split)
    if scaler is None:
        train_N = np.zeros(usable.size, dtype=bool)
        train_N[usable] = (frame.get_column("row_part") == TRAIN).fill_null(False).to_numpy()
        scaler = fit_scaler(table.frame, names, clip=settings.feature_clip, keep=train_N)
    if on_disk is None:
        on_disk = not fits_memory(frame.height, len(names), free=free_bytes())
    data = Dataset(
        x_NF=scaler.apply(table.frame, keep=usable, on_disk=on_disk, folder=folder),
        y_N=_float32(frame, "y"),
        raw_N=_float32(frame, "raw"),
        return_N=frame.get_column("ret").to_numpy().astype(np.float64, copy=False),
        vol_N=_float32(frame, "vol"),
        kind_N=frame.get_column("kind").to_numpy().astype(np.int8, copy=False),
        part_N=frame.get_column("part").to_numpy().astype(np.int8, copy=False),
        rows=frame.select("symbol", "ts", "session", "close", "end_part", "removed", label_session="last_session"),
        sequences=cut_sequences(
            frame.get_column("symbol").rle_id().to_numpy(),
            frame.get_column("slot").to_numpy(),
            frame.get_column("session").to_physical().to_numpy(),
            settings,
        ),
        scaler=scaler,
        split=split,
        features=table.features,
        universe=table.universe,
        calendars=table.calendars,
        settings=settings,
        lacking=lacking,
        warm_up=_by_part(early, split),
    )
    if training:
        _refuse_empty_part(data)
    return data


def say_parts(data: Dataset) -> str:
    """Dates of the parts and what was removed between them, in one line."""
    split = data.split
    of = f" of fold {split.fold} of {split.folds}" if split.folds > 1 else ""
    start = "" if split.train_start is None else f"from {split.train_start} "
    end = "" if split.test_end is None else f" to {split.test_end}"
    return (
        f"parts{of}: train {start}to {split.train_end}, validation to {split.validation_end},"
        f" calibration to {split.calibration_end}, test{end or ' from then on'}; {say_removed(data.rows)}"
    )


def choose_fold(splits: tuple[Split, ...], fold: int) -> Split:
    """One of the folds, numbered from 1.

    Raises
    ------
    DatasetError
        There is none of that number.
    """
    if not 1 <= fold <= len(splits):
        raise DatasetError(
            f"fold {fold}", expected=f"1 to {len(splits)}", got=str(fold), do="set dataset.split.folds, or name another"
        )
    return splits[fold - 1]


def _usable(frame: pl.DataFrame, features: FeatureSet) -> tuple[np.ndarray, dict[str, tuple[int, int]]]:
    """Rows with enough bars (their own included) and enough whole sessions before theirs; who has none."""
    counted = frame.select(
        "symbol",
        bars=pl.int_range(1, pl.len() + 1).over("symbol"),
        # whole sessions before the row's own: one that the history begins amid is not whole
        sessions=(
            pl.col("session").rle_id().over("symbol").cast(pl.Int32)
            - (pl.col("bar").first().over("symbol") > 0).cast(pl.Int32)
        ).clip(0),
    )
    enough = (pl.col("bars") >= features.lookback_bars) & (pl.col("sessions") >= features.lookback_sessions)
    mask = counted.select(enough).to_series().to_numpy()
    last = counted.group_by("symbol", maintain_order=True).agg(pl.col("bars").last(), pl.col("sessions").last())
    short = last.filter(~enough)
    return mask, {str(s): (int(b), int(n)) for s, b, n in short.iter_rows()}


def _short(features: FeatureSet, lacking: dict[str, tuple[int, int]]) -> DatasetError:
    most = max((bars for bars, _ in lacking.values()), default=0)
    days = max((sessions for _, sessions in lacking.values()), default=0)
    return DatasetError(
        "history",
        expected=f"a symbol with at least {features.lookback_bars} bars"
        f" and {features.lookback_sessions} finished sessions before the newest one",
        got=f"{most} bars and {days} sessions at most",
        do="ingest more history",
    )


def _by_part(early: pl.DataFrame, split: Split) -> dict[str, int]:
    parts = early.select(split.part_of(pl.col("session"))).to_series().value_counts().rows() if early.height else []
    return {PARTS[part] if part >= 0 else "outside": int(count) for part, count in sorted(parts)}


def _refuse_empty_part(data: Dataset) -> None:
    counts = data.counts()
    empty = [name for name, count in counts.items() if count == 0]
    if empty:
        shown = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        raise DatasetError(
            "labels of each part" + (f" of fold {data.split.fold}" if data.split.folds > 1 else ""),
            expected="some in train, validation, calibration and test",
            got=f"{shown} ({say_removed(data.rows)})",
            do="make the part longer (dataset.split), lower dataset.horizon or dataset.split.embargo, or see"
            " `klinepred bars check` for gaps",
        )


def _refuse_thin_target(frame: pl.DataFrame, settings: DatasetSettings) -> None:
    if frame.get_column("y").count() == 0:
        raise DatasetError(
            "targets",
            expected=f"bars with a next bar, and at least {QUORUM} symbols at the same time for a relative target",
            got=f"{frame.height} usable bars without a single {settings.target} target",
            do="check `klinepred bars check` for gaps, or train with --set dataset.target=raw",
        )


def _float32(frame: pl.DataFrame, name: str) -> np.ndarray:
    return frame.get_column(name).cast(pl.Float32).fill_null(float("nan")).to_numpy()
