"""In: a graded ledger. Out: for each finished session the model's live scores, as points for its MLflow run."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final

import polars as pl

from klinepred.bars.store import stored_clocks
from klinepred.calendar import Clock, segments
from klinepred.live.score import numbers
from klinepred.paths import Workspace
from klinepred.training.tracker import Metric

PREFIX: Final = "live/"
SHOWN: Final = ("ic", "ic_raw", "hit_rate", "hit_base", "coverage80", "graded")
TO_DATE: Final = ("ic", "ic_se", "hit_rate", "coverage80")


def session_points(rows: pl.DataFrame, *, clock: Clock, now: datetime) -> list[Metric]:
    """Scores of each session of one model, and of all sessions up to it (`..._to_date`).

    A session counts once it has ended and nothing is left to grade up to its end, so that a point need not change.

    Parameters
    ----------
    rows
        One model's of `klinepred.live.score.read_ledger`.
    clock
        By which sessions are numbered: the first one with a prediction is step 1.

    Returns
    -------
    list of Metric
        Finite numbers only; the time of a point is the end of its session.
    """
    left: Any = rows.filter(pl.col("revision").is_null()).get_column("target_ts").min()
    limit = now if left is None else min(now, left)
    done = rows.filter(pl.col("session_end") <= limit)
    if done.is_empty():
        return []
    days = segments(clock).get_column("session").unique()
    first: Any = done.get_column("session").min()
    points: list[Metric] = []
    for (session,), part in done.sort("session").group_by("session", maintain_order=True):
        step = int(((days >= first) & (days <= session)).sum())
        end: Any = part.get_column("session_end").max()
        so_far = numbers(done.filter(pl.col("session") <= session))
        here = numbers(part)
        named = {name: here[name] for name in SHOWN} | {f"{name}_to_date": so_far[name] for name in TO_DATE}
        time_ms = int(end.timestamp() * 1000)
        points += [
            Metric(PREFIX + name, float(value), step, time_ms) for name, value in named.items() if math.isfinite(value)
        ]
    return points


def clock_of(rows: pl.DataFrame, space: Workspace) -> Clock:
    """The clock that most of these predictions live by; 24/7 where none of their symbols is stored."""
    clocks = {symbol: str(clock) for symbol, clock in stored_clocks(space).items()}
    known = rows.get_column("symbol").replace_strict(clocks, default=None, return_dtype=pl.String).drop_nulls()
    return Clock.parse(known.mode().sort().item(0)) if known.len() else Clock("24/7")


def log_live(ledger: pl.DataFrame, space: Workspace, *, now: datetime | None = None) -> dict[str, int | None]:
    """Put the points of every model in `ledger` into its MLflow run; what is there already is not put in twice.

    Returns
    -------
    dict
        By model: how many points were new; None = the store has no such run.

    Raises
    ------
    UsageError, TrainingError
        See `klinepred.training.review.add_series`.
    """
    from klinepred.training.review import add_series

    clock_now = datetime.now(UTC) if now is None else now
    added: dict[str, int | None] = {}
    for (model, run_id), rows in ledger.group_by(["model", "run_id"], maintain_order=True):
        points = session_points(rows, clock=clock_of(rows, space), now=clock_now)
        if points:
            added[str(model)] = add_series(space, str(run_id or ""), points)
    return added
