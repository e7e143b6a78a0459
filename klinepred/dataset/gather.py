"""In: features, some whole symbols at a time. Out: `Gathered`: of the rows that can be used, inputs and columns."""

# Shapes: N usable rows, F features.

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from klinepred.dataset.memory import fits_memory, free_bytes, new_matrix
from klinepred.dataset.pieces import height, pieces
from klinepred.dataset.scale import Scaler
from klinepred.dataset.split import Split, assign_parts, label_sessions
from klinepred.dataset.target import add_labels, raw_targets, relative_means
from klinepred.features.build import FeatureFrame
from klinepred.features.cache import Cached
from klinepred.features.spec import FeatureSet
from klinepred.schema import CALENDAR
from klinepred.settings import DatasetSettings

KEPT: Final = ("symbol", "ts", "close", "session", "slot", "kind", "vol", "ret", "raw", "first_session", "last_session")
"""Of usable rows, of what `raw_targets` gives."""
EARLY: Final = ("symbol", "ts", "kind", "raw", "session")
"""Of the others: they count in the mean that a relative target is taken against."""


@dataclass
class Gathered:
    """What one pass over the features leaves.

    Attributes
    ----------
    x_NF
        Features, Float32, C order: scaled where a scaler was given, else raw with NaN for a masked value.
    parts
        `KEPT` of the N rows, piece by piece; `finish` puts others in their place.
    early
        `EARLY` of the rows with too little history, piece by piece.
    lacking
        As `klinepred.dataset.make.Dataset.lacking`.
    """

    x_NF: np.ndarray
    parts: list[pl.DataFrame]
    early: list[pl.DataFrame]
    lacking: dict[str, tuple[int, int]]

    @property
    def rows(self) -> int:
        """N."""
        return len(self.x_NF)

    def sessions(self) -> list[date]:
        """The distinct sessions in which a label ends, in order."""
        return label_sessions(self.parts)

    def finish(self, settings: DatasetSettings, split: Split, *, universe: tuple[str, ...]) -> int:
        """Add `y` and what `assign_parts` says to the parts, drop what is not needed any more; the number of targets.

        One piece after another takes the place of what it was made from, so that no column stands twice for all rows.
        """
        means, sessions = relative_means([*self.parts, *self.early], settings, universe=universe), self.sessions()
        count = 0
        for number, part in enumerate(self.parts):
            whole = assign_parts(add_labels(part, settings, means=means), split, sessions=sessions)
            count += whole.get_column("y").count()
            self.parts[number] = whole.drop("first_session").cast({"raw": pl.Float32(), "y": pl.Float32()})
        return count

    def take(self, name: str) -> pl.Series:
        """A column of all N rows, which the parts no longer have."""
        column = pl.concat([part.get_column(name) for part in self.parts], rechunk=True)
        self.parts = [part.drop(name) for part in self.parts]
        return column


def gather(
    table: FeatureFrame | Cached,
    settings: DatasetSettings,
    *,
    scaler: Scaler | None,
    on_disk: bool | None = None,
    folder: Path | None = None,
) -> Gathered:
    """Compute targets, choose the rows with enough history, and put their features into one matrix.

    Parameters
    ----------
    scaler
        Scales the features at once; None = they stay raw.
    on_disk, folder
        As `klinepred.dataset.make.make_dataset`.

    Raises
    ------
    ModelError
        A feature of the scaler is absent.
    """
    names = table.features.names
    if scaler is not None:
        scaler.check(table.frame.columns if isinstance(table, FeatureFrame) else names)
        names = scaler.names
    most = height(table)
    if on_disk is None:
        on_disk = not fits_memory(most, len(names), free=free_bytes())
    x_NF = new_matrix(most, len(names), on_disk=on_disk, folder=folder)
    clocks = pl.DataFrame(
        {"symbol": list(table.calendars), CALENDAR: list(table.calendars.values())},
        schema={"symbol": pl.String, CALENDAR: pl.String},
    )
    parts: list[pl.DataFrame] = []
    early: list[pl.DataFrame] = []
    lacking: dict[str, tuple[int, int]] = {}
    at = 0
    for piece in pieces(table, folder=folder):
        if piece.is_empty():
            continue
        closes = piece.select("symbol", "ts", "close").join(clocks, on="symbol", how="left", maintain_order="left")
        frame = raw_targets(closes, settings)
        usable, short = usable_rows(frame, table.features)
        lacking |= short
        early.append(frame.filter(~usable).select(EARLY))
        parts.append(frame.filter(usable).select(KEPT).cast({"vol": pl.Float32()}))
        inputs = piece.select(pl.col(names).cast(pl.Float32())).filter(usable)
        end = at + inputs.height
        x_NF[at:end] = inputs.to_numpy()
        if scaler is not None:
            scaler.scale(x_NF[at:end])
        at = end
    return Gathered(x_NF[:at], parts, early, lacking)


def usable_rows(frame: pl.DataFrame, features: FeatureSet) -> tuple[pl.Series, dict[str, tuple[int, int]]]:
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
    last = counted.group_by("symbol", maintain_order=True).agg(pl.col("bars").last(), pl.col("sessions").last())
    short = last.filter(~enough)
    return counted.select(enough).to_series(), {str(s): (int(b), int(n)) for s, b, n in short.iter_rows()}
