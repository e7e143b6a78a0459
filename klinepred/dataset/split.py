"""In: sessions and settings. Out: the dates that part train, validation, calibration and test; the part of a label."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import polars as pl

from klinepred.errors import DatasetError
from klinepred.settings import SplitSettings

PARTS: Final = ("train", "validation", "calibration", "test")
TRAIN, VALIDATION, CALIBRATION, TEST = range(4)


@dataclass(frozen=True)
class Split:
    """Last session of each part; test is what follows `calibration_end`.

    The calibration part is the last third of the validation span: early stopping and the choice of a model never see
    it, so that intervals and probabilities fitted on it are honest.
    """

    train_end: date
    validation_end: date
    calibration_end: date
    embargo: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "train_end": self.train_end.isoformat(),
            "validation_end": self.validation_end.isoformat(),
            "calibration_end": self.calibration_end.isoformat(),
            "embargo": self.embargo,
        }

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Split:
        """The inverse of `to_dict`."""
        return cls(
            train_end=date.fromisoformat(table["train_end"]),
            validation_end=date.fromisoformat(table["validation_end"]),
            calibration_end=date.fromisoformat(table["calibration_end"]),
            embargo=int(table["embargo"]),
        )

    def part_of(self, session: pl.Expr) -> pl.Expr:
        """Int8 index into `PARTS` by a session date; null for null."""
        return (
            pl.when(session <= self.train_end)
            .then(TRAIN)
            .when(session <= self.validation_end)
            .then(VALIDATION)
            .when(session <= self.calibration_end)
            .then(CALIBRATION)
            .when(session.is_not_null())
            .then(TEST)
            .cast(pl.Int8)
        )


def make_split(sessions: list[date], settings: SplitSettings) -> Split:
    """Resolve shares or dates to dates.

    Parameters
    ----------
    sessions
        The distinct sessions with labels, in order.

    Raises
    ------
    DatasetError
        Fewer than eight sessions, or dates that leave a part empty.
    """
    count = len(sessions)
    if settings.train_end is not None and settings.validation_end is not None:
        before = [day for day in sessions if day <= settings.train_end]
        between = [day for day in sessions if settings.train_end < day <= settings.validation_end]
    else:
        first = max(1, round(count * settings.train))
        second = max(first + 3, round(count * (settings.train + settings.validation)))
        before, between = sessions[:first], sessions[first:second]
    after = count - len(before) - len(between)
    if count < 8 or not before or len(between) < 3 or after < 1:
        span = f"{sessions[0]} to {sessions[-1]}" if sessions else "none"
        raise DatasetError(
            "split into train, validation, calibration and test",
            expected="at least 8 labelled sessions after the warm-up: 1+ train, 3+ validation, 1+ test",
            got=f"{count} sessions ({span}): {len(before)} train, {len(between)} validation, {after} test",
            do="ingest more history, or change dataset.split (train_end, validation_end or the shares)",
        )
    held = max(1, len(between) // 3)
    return Split(
        train_end=before[-1],
        validation_end=between[-1 - held],
        calibration_end=between[-1],
        embargo=settings.embargo,
    )


def assign_parts(frame: pl.DataFrame, split: Split) -> pl.DataFrame:
    """Add `part` (Int8, index into `PARTS`, of the LABEL; -1 = no label or purged) and `row_part` (of the bar itself).

    A label runs from the close of t to the close of t+h. It belongs to a part only if the bars t+1 .. t+h all lie in
    that part's sessions, so no label of one part ends after the next begins; the inputs of a label may reach back over
    a border. Labels in the first `embargo` sessions after train and after the calibration part are left out.

    Parameters
    ----------
    frame
        session, first_session, last_session, raw (see `klinepred.dataset.target.add_targets`).
    """
    labelled = pl.col("raw").is_not_null()
    whole = split.part_of(pl.col("first_session")) == split.part_of(pl.col("last_session"))
    blocked: list[date] = []
    if split.embargo:
        days = frame.get_column("last_session").drop_nulls().unique().sort().to_list()
        for edge in (split.train_end, split.calibration_end):
            blocked += [day for day in days if day > edge][: split.embargo]
    free = ~pl.col("last_session").is_in(blocked)
    return frame.with_columns(
        part=pl.when(labelled & whole & free).then(split.part_of(pl.col("last_session"))).otherwise(-1).cast(pl.Int8),
        row_part=split.part_of(pl.col("session")),
    )
