"""In: a graded ledger. Out: points by session for MLflow: finished sessions only, once, in the run of the model."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import polars as pl
import pytest

from klinepred.calendar import Clock
from klinepred.live.series import log_live, session_points
from klinepred.paths import Workspace
from klinepred.training.tracker import Metric
from tests.bars.made import utc

FRIDAY, WEDNESDAY = utc("2026-06-05T20:00"), utc("2026-06-10T20:00")


def _ledger(run_id: str = "r") -> pl.DataFrame:
    """Friday: outcomes as forecast, 1, 2, 3 bps; the Wednesday after it: the opposite."""
    made = pl.DataFrame(
        {
            "model": "m",
            "run_id": run_id,
            "target": "raw",
            "symbol": ["A", "B", "C"] * 2,
            "note": "",
            "expected_return_bps": [1.0, 2.0, 3.0] * 2,
            "realised_bps": [1.0, 2.0, 3.0, -1.0, -2.0, -3.0],
            "vol_bps": 1.0,
            "lo80_bps": -2.5,
            "hi80_bps": 2.5,
            "reason": pl.Series([None] * 6, dtype=pl.String),
            "revision": pl.Series([0] * 6, dtype=pl.Int64),
            "session": [date(2026, 6, 5)] * 3 + [date(2026, 6, 10)] * 3,
            "session_end": [FRIDAY] * 3 + [WEDNESDAY] * 3,
            "target_ts": [utc("2026-06-05T15:00")] * 3 + [utc("2026-06-10T15:00")] * 3,
        }
    )
    return made.with_columns(raw_bps=pl.col("realised_bps"))


def _of(points: list[Metric], name: str) -> list[tuple[float, int]]:
    return [(round(point.value, 6), point.step) for point in points if point.name == f"live/{name}"]


def test_a_session_and_all_up_to_it_are_scored_and_numbered_by_the_calendar() -> None:
    points = session_points(_ledger(), clock=Clock("XNYS"), now=utc("2026-06-11T00:00"))
    assert _of(points, "ic") == [(1.0, 1), (-1.0, 4)]  # 5, 8, 9, 10 June are sessions
    assert _of(points, "ic_to_date") == [(1.0, 1), (0.0, 4)]
    assert _of(points, "hit_rate") == [(1.0, 1), (0.0, 4)]
    assert _of(points, "hit_rate_to_date") == [(1.0, 1), (0.5, 4)]
    assert _of(points, "coverage80") == [(round(2 / 3, 6), 1), (round(2 / 3, 6), 4)]
    assert _of(points, "graded") == [(3.0, 1), (3.0, 4)]
    assert {point.time_ms for point in points} == {int(FRIDAY.timestamp() * 1000), int(WEDNESDAY.timestamp() * 1000)}


def test_a_session_counts_once_it_is_over_and_wholly_graded() -> None:
    now = utc("2026-06-10T19:59")
    assert {point.step for point in session_points(_ledger(), clock=Clock("XNYS"), now=now)} == {1}
    waiting = _ledger().with_columns(
        revision=pl.when((pl.col("symbol") == "B") & (pl.col("session") == date(2026, 6, 10)))
        .then(None)
        .otherwise("revision")
    )
    later = utc("2026-06-20T00:00")
    assert {point.step for point in session_points(waiting, clock=Clock("XNYS"), now=later)} == {1}
    assert session_points(_ledger().clear(), clock=Clock("XNYS"), now=later) == []


def test_points_go_into_the_models_run_once_and_a_lost_run_is_told(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    space = Workspace(tmp_path)
    now = utc("2026-06-11T00:00")
    assert log_live(_ledger(), space, now=now) == {"m": None}  # no store
    assert not space.mlruns.exists()
    space.mlruns.mkdir(parents=True)
    client = MlflowClient(tracking_uri=space.tracking_uri)
    run_id = client.create_run(client.create_experiment("klinepred/demo")).info.run_id
    client.set_terminated(run_id, "FINISHED")
    first = log_live(_ledger(run_id), space, now=now)["m"]
    assert first is not None
    assert first > 10
    assert log_live(_ledger(run_id), space, now=now) == {"m": 0}
    history = client.get_metric_history(run_id, "live/ic")  # A, B and C are not stored: days are counted
    assert [(point.step, round(point.value, 6), point.timestamp) for point in history] == [
        (1, 1.0, int(FRIDAY.timestamp() * 1000)),
        (6, -1.0, int(WEDNESDAY.timestamp() * 1000)),
    ]
    assert client.get_run(run_id).info.status == "FINISHED"
    assert log_live(_ledger("0" * 32), space, now=now) == {"m": None}


def test_a_store_that_cannot_be_read_is_one_message(tmp_path: Path) -> None:
    from klinepred.errors import TrainingError

    space = Workspace(tmp_path)
    space.mlruns.mkdir(parents=True)
    (space.mlruns / "mlflow.db").write_text("no database, but long enough to be read as the head of one" * 20)
    with pytest.raises(TrainingError, match="expected"):
        log_live(_ledger(), space, now=utc("2026-06-11T00:00"))
