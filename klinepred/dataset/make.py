"""In: a `FeatureFrame`, settings. Out: `Dataset`: scaled features, targets, parts and sequences, ready for the LSTM."""

# Shapes: N usable rows, F features.

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from klinepred.dataset.gather import gather
from klinepred.dataset.scale import Scaler, fit_rows
from klinepred.dataset.sequences import Sequences, cut_sequences
from klinepred.dataset.split import PARTS, TRAIN, Split, make_splits, say_removed
from klinepred.dataset.target import QUORUM
from klinepred.errors import DatasetError
from klinepred.features.build import FeatureFrame
from klinepred.features.cache import Cached
from klinepred.features.spec import FeatureSet
from klinepred.schema import CALENDAR
from klinepred.settings import DatasetSettings


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
    table: FeatureFrame | Cached,
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

    Features are read once, some whole symbols at a time, into the one matrix that there is; it is scaled where it lies.
    Of the rest, nothing but what the dataset keeps stands for all rows.

    Parameters
    ----------
    table
        Features in memory, or as they are kept in files; the dataset is the same.
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
    if settings.target == "relative" and split is None and len(table.universe) < QUORUM:
        raise DatasetError(
            "relative target",
            expected=f"at least {QUORUM} symbols in the universe",
            got=f"{len(table.universe)}: {', '.join(table.universe)}",
            do="ingest more symbols, or train on raw returns with --set dataset.target=raw",
        )
    found = gather(table, settings, scaler=scaler, on_disk=on_disk, folder=folder)
    if not found.parts or (not found.rows and (need_rows or split is None)):
        raise _short(table.features, found.lacking)
    training = split is None
    if split is None:
        split = choose_fold(make_splits(found.sessions(), settings.split), fold)
    targets = found.finish(settings, split, universe=table.universe)
    if training and not targets:
        raise _no_targets(found.rows, settings)
    if scaler is None:
        train_N = (found.take("row_part") == TRAIN).to_numpy()
        scaler = fit_rows(found.x_NF, train_N, table.features.names, clip=settings.feature_clip)
        scaler.scale(found.x_NF)
    rows = pl.DataFrame([found.take(name) for name in ("symbol", "ts", "session", "close", "end_part", "removed")])
    data = Dataset(
        x_NF=found.x_NF,
        y_N=_floats(found.take("y")),
        raw_N=_floats(found.take("raw")),
        return_N=_floats(found.take("ret")),
        vol_N=_floats(found.take("vol")),
        kind_N=found.take("kind").to_numpy(),
        part_N=found.take("part").to_numpy(),
        rows=rows.with_columns(label_session=found.take("last_session")),
        sequences=cut_sequences(
            rows.get_column("symbol").rle_id().to_numpy(),
            found.take("slot").to_numpy(),
            rows.get_column("session").to_physical().to_numpy(),
            settings,
        ),
        scaler=scaler,
        split=split,
        features=table.features,
        universe=table.universe,
        calendars=table.calendars,
        settings=settings,
        lacking=found.lacking,
        warm_up=_by_part(found.early, split),
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


def _by_part(early: list[pl.DataFrame], split: Split) -> dict[str, int]:
    parts = pl.concat([one.select(split.part_of(pl.col("session"))).to_series() for one in early]).value_counts()
    return {PARTS[part] if part >= 0 else "outside": int(count) for part, count in sorted(parts.rows())}


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


def _no_targets(rows: int, settings: DatasetSettings) -> DatasetError:
    return DatasetError(
        "targets",
        expected=f"bars with a next bar, and at least {QUORUM} symbols at the same time for a relative target",
        got=f"{rows} usable bars without a single {settings.target} target",
        do="check `klinepred bars check` for gaps, or train with --set dataset.target=raw",
    )


def _floats(column: pl.Series) -> np.ndarray:
    return column.fill_null(float("nan")).to_numpy()
