"""In: a run that was killed between record and checkpoint, and goes on. Out: each step stands in MLflow once."""

from __future__ import annotations

from pathlib import Path

from klinepred.paths import Workspace
from klinepred.training.tracker import Metric
from klinepred.training.tracking import MlflowTracker
from tests.training.tiny import tiny_pipeline


def test_a_step_that_was_recorded_before_a_kill_is_not_recorded_twice(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    run = tiny_pipeline(name="twice")
    first = MlflowTracker(space, run)
    first.start(run, params={}, tags={}, resume=None)
    first.log_metrics([Metric("step/loss", 1.0 / step, step, 0) for step in range(1, 6)])
    first.settle()
    first.end("KILLED")
    second = MlflowTracker(space, run)
    second.start(run, params={}, tags={}, resume=first.run_id)
    assert second.run_id == first.run_id
    second.log_metrics([Metric("step/loss", 1.0 / step, step, 0) for step in range(4, 9)])  # from the checkpoint on
    second.log_metrics([Metric("val_loss", 0.5, 1, 0)])
    second.end("FINISHED")
    curve = second.client.get_metric_history(second.run_id, "step/loss")
    assert [metric.step for metric in curve] == list(range(1, 9))
    assert [metric.step for metric in second.client.get_metric_history(second.run_id, "val_loss")] == [1]
