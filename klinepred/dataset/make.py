"""In: a `FeatureFrame`, settings. Out: `Dataset`: scaled features, targets, parts and sequences, ready for the LSTM."""

# Shapes: N usable rows, F features.

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import polars as pl

from klinepred.dataset.scale import Scaler, fit_scaler
from klinepred.dataset.sequences import Sequences, cut_sequences
from klinepred.dataset.split import PARTS, TRAIN, Split, assign_parts, make_split
from klinepred.dataset.target import QUORUM, add_targets
from klinepred.errors import DatasetError
from klinepred.features.build import FeatureFrame
from klinepred.features.spec import FeatureSet
from klinepred.schema import CALENDAR
from klinepred.settings import DatasetSettings

log = logging.getLogger("klinepred.dataset")


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
        target ends (null = no target): an overnight target belongs to the session it opens.
    sequences
        All sequences over the N rows; `sequences.covering(data.mask("train"))` are those of a part.
    lacking
        By symbol, bars and sessions of those that have too few for a usable row: (bars, sessions).
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
    need_rows: bool = True,
) -> Dataset:
    """Targets, parts, scaling and sequences from a table of features.

    A row is usable once its symbol has the bars and sessions behind it that the feature set looks back over; rows
    before that are in no sequence. For training leave `scaler` and `split` out: the split is resolved from the
    settings and the scaler fitted on the rows of train sessions only. For evaluating or predicting with a model pass
    the model's own; with `need_rows` false it is no error that no row is usable (`lacking` says why).

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
    usable, lacking = _usable(frame, table.features) if closes.height else (np.zeros(0, dtype=bool), {})
    if not usable.any() and (need_rows or split is None):
        most = max((bars for bars, _ in lacking.values()), default=0)
        days = max((sessions for _, sessions in lacking.values()), default=0)
        raise DatasetError(
            "history",
            expected=f"a symbol with at least {table.features.lookback_bars} bars"
            f" and {table.features.lookback_sessions} finished sessions before the newest one",
            got=f"{most} bars and {days} sessions at most",
            do="ingest more history",
        )
    frame = frame.filter(pl.Series(usable))
    matrix = table.frame.filter(pl.Series(usable))
    if split is None:
        split = make_split(frame.get_column("last_session").drop_nulls().unique().sort().to_list(), settings.split)
        _refuse_thin_target(frame, settings)
    frame = assign_parts(frame, split)
    if scaler is None:
        scaler = fit_scaler(matrix.filter(frame.get_column("row_part") == TRAIN), names, clip=settings.feature_clip)
    symbol_N = frame.get_column("symbol").rle_id().to_numpy()
    session_N = frame.get_column("session").to_physical().to_numpy()
    data = Dataset(
        x_NF=scaler.apply(matrix),
        y_N=_float32(frame, "y"),
        raw_N=_float32(frame, "raw"),
        return_N=frame.get_column("ret").to_numpy().astype(np.float64),
        vol_N=_float32(frame, "vol"),
        kind_N=frame.get_column("kind").to_numpy().astype(np.int8),
        part_N=frame.get_column("part").to_numpy().astype(np.int8),
        rows=frame.select("symbol", "ts", "session", "close", label_session="last_session"),
        sequences=cut_sequences(symbol_N, frame.get_column("slot").to_numpy(), session_N, settings),
        scaler=scaler,
        split=split,
        features=table.features,
        universe=table.universe,
        calendars=table.calendars,
        settings=settings,
        lacking=lacking,
    )
    purged = int(((data.part_N < 0) & np.isfinite(data.y_N)).sum())
    log.debug("dataset: %s labelled rows, %d labels purged at the borders of parts", data.counts(), purged)
    return data


def _usable(frame: pl.DataFrame, features: FeatureSet) -> tuple[np.ndarray, dict[str, tuple[int, int]]]:
    """Rows with enough bars (their own included) and enough whole sessions before theirs; who has none."""
    counted = frame.select(
        "symbol",
        bars=pl.int_range(1, pl.len() + 1).over("symbol"),
        sessions=pl.col("session").rle_id().over("symbol"),
    )
    enough = (pl.col("bars") >= features.lookback_bars) & (pl.col("sessions") >= features.lookback_sessions)
    mask = counted.select(enough).to_series().to_numpy()
    last = counted.group_by("symbol", maintain_order=True).agg(pl.col("bars", "sessions").last())
    short = last.filter(~enough)
    return mask, {str(s): (int(b), int(n)) for s, b, n in short.iter_rows()}


def _refuse_thin_target(frame: pl.DataFrame, settings: DatasetSettings) -> None:
    if frame.get_column("y").count() == 0:
        raise DatasetError(
            "targets",
            expected=f"bars with a next bar, and at least {QUORUM} symbols at the same time for a relative target",
            got=f"{frame.height} usable bars without a single {settings.target} target",
            do="check `klinepred bars check` for gaps, or train with --set dataset.target=raw",
        )


def _float32(frame: pl.DataFrame, name: str) -> np.ndarray:
    return frame.get_column(name).cast(pl.Float32).to_numpy().astype(np.float32)
