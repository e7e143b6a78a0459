"""In: sessions and settings. Out: the dates that part train, validation, calibration and test, fold by fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import polars as pl

from klinepred.errors import DatasetError
from klinepred.settings import SplitSettings

PARTS: Final = ("train", "validation", "calibration", "test")
TRAIN, VALIDATION, CALIBRATION, TEST = range(4)
OUTSIDE: Final = -1
"""Before the train part or after the test part of a fold."""
KEPT, PURGED, EMBARGOED = range(3)
"""Why a label is in no part, see `assign_parts`."""


@dataclass(frozen=True)
class Split:
    """Last session of each part; test is what follows `calibration_end`.

    The calibration part is the last third of the validation span: early stopping and the choice of a model never see
    it, so that intervals and probabilities fitted on it are honest.

    Attributes
    ----------
    train_start, test_end
        First session of train and last one of test in a fold of a walk-forward; None = no such border.
    fold, folds
        Which of how many, from 1.
    """

    train_end: date
    validation_end: date
    calibration_end: date
    embargo: int = 0
    train_start: date | None = None
    test_end: date | None = None
    fold: int = 1
    folds: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "train_start": None if self.train_start is None else self.train_start.isoformat(),
            "train_end": self.train_end.isoformat(),
            "validation_end": self.validation_end.isoformat(),
            "calibration_end": self.calibration_end.isoformat(),
            "test_end": None if self.test_end is None else self.test_end.isoformat(),
            "embargo": self.embargo,
            "fold": self.fold,
            "folds": self.folds,
        }

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Split:
        """The inverse of `to_dict`; what bundles of before the walk-forward do not have is one split without ends."""
        start, end = table.get("train_start"), table.get("test_end")
        return cls(
            train_end=date.fromisoformat(table["train_end"]),
            validation_end=date.fromisoformat(table["validation_end"]),
            calibration_end=date.fromisoformat(table["calibration_end"]),
            embargo=int(table["embargo"]),
            train_start=None if start is None else date.fromisoformat(start),
            test_end=None if end is None else date.fromisoformat(end),
            fold=int(table.get("fold", 1)),
            folds=int(table.get("folds", 1)),
        )

    def part_of(self, session: pl.Expr) -> pl.Expr:
        """Int8 index into `PARTS` by a session date, or `OUTSIDE`; null for null."""
        outside = pl.lit(False)
        if self.train_start is not None:
            outside = outside | (session < self.train_start)
        if self.test_end is not None:
            outside = outside | (session > self.test_end)
        return (
            pl.when(outside)
            .then(OUTSIDE)
            .when(session <= self.train_end)
            .then(TRAIN)
            .when(session <= self.validation_end)
            .then(VALIDATION)
            .when(session <= self.calibration_end)
            .then(CALIBRATION)
            .when(session.is_not_null())
            .then(TEST)
            .cast(pl.Int8)
        )


def make_splits(sessions: list[date], settings: SplitSettings) -> tuple[Split, ...]:
    """Resolve shares or dates to the dates of every fold, oldest first; one split is one fold.

    The test spans of the folds follow each other and fill the test part of the single split; so the first fold has
    the train and validation part of the single split. Each later one is moved on by a test span: its validation part
    keeps its number of sessions and ends right before its test span; its train part reaches back to the beginning
    (expanding) or keeps its number of sessions (rolling).

    Parameters
    ----------
    sessions
        The distinct sessions with labels, in order.

    Raises
    ------
    DatasetError
        Fewer than eight sessions, dates that leave a part empty, more folds than test sessions, or an embargo that
        takes a part whole.
    """
    count = len(sessions)
    if settings.train_end is not None and settings.validation_end is not None:
        first = sum(day <= settings.train_end for day in sessions)
        second = sum(day <= settings.validation_end for day in sessions)
    else:
        first = max(1, round(count * settings.train))
        second = min(count, max(first + 3, round(count * (settings.train + settings.validation))))
    between, after = second - first, count - second
    if count < 8 or first < 1 or between < 3 or after < 1:
        span = f"{sessions[0]} to {sessions[-1]}" if sessions else "none"
        raise DatasetError(
            "split into train, validation, calibration and test",
            expected="at least 8 labelled sessions after the warm-up: 1+ train, 3+ validation, 1+ test",
            got=f"{count} sessions ({span}): {first} train, {between} validation, {after} test",
            do="ingest more history, or change dataset.split (train_end, validation_end or the shares)",
        )
    held = max(1, between // 3)
    folds = settings.folds
    _refuse_impossible(settings, validation=between - held, test=after)
    splits = []
    for fold in range(folds):
        start, end = second + after * fold // folds, second + after * (fold + 1) // folds
        moved = start - second
        splits.append(
            Split(
                train_end=sessions[first + moved - 1],
                validation_end=sessions[start - 1 - held],
                calibration_end=sessions[start - 1],
                embargo=settings.embargo,
                train_start=sessions[moved] if settings.scheme == "rolling" and folds > 1 else None,
                test_end=sessions[end - 1] if fold + 1 < folds else None,
                fold=fold + 1,
                folds=folds,
            )
        )
    return tuple(splits)


def _refuse_impossible(settings: SplitSettings, *, validation: int, test: int) -> None:
    if settings.folds > test:
        raise DatasetError(
            "walk-forward",
            expected="at least one test session a fold",
            got=f"{settings.folds} folds for a test part of {test} sessions",
            do=f"set dataset.split.folds to {test} or less, or move the end of validation back",
        )
    room = min(validation, test // settings.folds)
    if settings.embargo >= room:
        raise DatasetError(
            "embargo",
            expected=f"fewer sessions than the shortest part after a border has, {room}",
            got=f"{settings.embargo}: nothing of that part would be left",
            do="set dataset.split.embargo lower, or make validation and test longer",
        )


def assign_parts(frame: pl.DataFrame, split: Split, *, sessions: list[date] | None = None) -> pl.DataFrame:
    """Say of every label to which part it belongs, or why to none.

    A label runs from the close of t to the close of t+h. It belongs to a part only if the bars t+1 .. t+h all lie in
    that part's sessions, so no label of one part ends after the next begins; the inputs of a label may reach back over
    a border. Labels with a bar in the first `embargo` sessions after train and after the calibration part are left out.

    Parameters
    ----------
    frame
        session, first_session, last_session, raw (see `klinepred.dataset.target.add_targets`).
    sessions
        All sessions in which a label ends, in order, where `frame` is a part of the rows; default: those of `frame`.

    Returns
    -------
    polars.DataFrame
        `frame` with `part` (Int8, index into `PARTS` of the label; -1 = no label, or in no part), `removed` (Int8:
        KEPT, PURGED = it reaches over a border, EMBARGOED), `end_part` (Int8, of the session the label ends in, or of
        the bar itself where it has no label; `OUTSIDE` = not of this fold) and `row_part` (of the bar itself).
    """
    labelled = pl.col("raw").is_not_null()
    blocked: list[date] = []
    if split.embargo:
        days = label_sessions([frame]) if sessions is None else sessions
        for edge in (split.train_end, split.calibration_end):
            blocked += [day for day in days if day > edge][: split.embargo]
    frame = frame.with_columns(
        _first=split.part_of(pl.col("first_session")),
        _last=split.part_of(pl.col("last_session")),
        row_part=split.part_of(pl.col("session")),
    )
    removed = (
        pl.when(~labelled | (pl.col("_last") == OUTSIDE))
        .then(KEPT)
        .when(pl.col("_first") != pl.col("_last"))
        .then(PURGED)
        .when(pl.col("first_session").is_in(blocked) | pl.col("last_session").is_in(blocked))
        .then(EMBARGOED)
        .otherwise(KEPT)
        .cast(pl.Int8)
    )
    return (
        frame.with_columns(removed=removed, end_part=pl.coalesce("_last", "row_part"))
        .with_columns(
            part=pl.when(labelled & (pl.col("removed") == KEPT)).then("_last").otherwise(OUTSIDE).cast(pl.Int8)
        )
        .drop("_first", "_last")
    )


def label_sessions(parts: Sequence[pl.DataFrame]) -> list[date]:
    """The distinct sessions in which a label of any of the parts ends, in order."""
    days = [part.get_column("last_session").drop_nulls().unique() for part in parts]
    return pl.concat(days).unique().sort().to_list()


def removed_labels(rows: pl.DataFrame) -> dict[str, dict[str, int]]:
    """Labels that belong to no part: by the part they end in, how many were `purged` and `embargoed`.

    Parameters
    ----------
    rows
        end_part, removed; see `assign_parts`.
    """
    counts = rows.filter(pl.col("removed") != KEPT).group_by("end_part", "removed").len().sort("end_part", "removed")
    found: dict[str, dict[str, int]] = {}
    for part, why, count in counts.iter_rows():
        found.setdefault(PARTS[part], {})["purged" if why == PURGED else "embargoed"] = int(count)
    return found


def say_removed(rows: pl.DataFrame) -> str:
    """`removed_labels` in words, border by border."""
    found = removed_labels(rows)
    texts = [
        f"at the head of {part} " + " and ".join(f"{count:,} {why}" for why, count in whys.items())
        for part, whys in found.items()
    ]
    return "labels removed: " + ("; ".join(texts) if texts else "none")
