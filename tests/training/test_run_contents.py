"""In: a tiny training. Out: what its MLflow run names: the dataset, the registered model, the view of the run list."""

from __future__ import annotations

import json
import math
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from klinepred.dataset.make import Dataset
from klinepred.evaluation.verdict import judge
from klinepred.paths import Workspace
from klinepred.training.metric_names import original_name
from klinepred.training.review import add_to_run
from klinepred.training.tracking import MlflowTracker
from klinepred.training.verdict_view import view_paths
from tests.evaluation.samples import panel
from tests.training.tiny import TRAIN, fit, tiny_dataset, tiny_pipeline


@pytest.fixture(scope="module")
def data() -> Dataset:
    return tiny_dataset()


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("contents"))


@pytest.fixture(scope="module")
def finished(space: Workspace, data: Dataset) -> MlflowTracker:
    settings = TRAIN.model_copy(update={"epochs": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        tracker = MlflowTracker(space, tiny_pipeline(settings))
    fit(data, settings, tracker=tracker)
    return tracker


def test_the_newest_model_is_registered_as_candidate(finished: MlflowTracker) -> None:
    version = finished.client.get_model_version_by_alias("klinepred-tiny", "candidate")
    of_run = [found.version for found in finished.client.search_model_versions(f"run_id = '{finished.run_id}'")]
    assert len(of_run) == 1
    assert int(version.version) >= int(of_run[0])
    assert version.tags["leak_certificate"] == "not audited"
    assert version.tags["target"] == "relative"


def test_the_dataset_is_an_input_of_the_run(finished: MlflowTracker, data: Dataset, tmp_path: Path) -> None:
    inputs = finished.client.get_run(finished.run_id).inputs
    assert inputs is not None
    (entry,) = inputs.dataset_inputs
    assert entry.dataset.name == "bars of tiny"
    assert {tag.key: tag.value for tag in entry.tags} == {"mlflow.data.context": "training"}
    profile = json.loads(entry.dataset.profile or "")
    assert (profile["symbols"], profile["names"]) == (6, "S0, S1, S2, S3, S4, S5")
    assert (profile["first_session"], profile["last_session"]) == ("2026-01-05", "2026-01-24")
    assert profile["rows_train"] == int(data.mask("train").sum())
    columns = json.loads(entry.dataset.schema or "")["mlflow_colspec"]
    assert [column["name"] for column in columns] == list(data.features.names)
    whole = json.loads(
        Path(finished.client.download_artifacts(finished.run_id, "dataset.json", str(tmp_path))).read_text()
    )
    assert whole["digest"] == entry.dataset.digest
    assert whole["symbols"]["S3"] == {
        "calendar": "24/7",
        "first_session": "2026-01-05",
        "last_session": "2026-01-24",
    }


def test_the_run_list_has_a_view_with_verdict_and_certificate(finished: MlflowTracker, space: Workspace) -> None:
    experiment = finished.client.get_experiment_by_name("klinepred/tiny")
    assert experiment is not None
    state = json.loads(json.loads(experiment.tags["mlflow.sharedViewState.klinepred"])["state"])
    assert state["columnOrder"][:2] == ["tags.`verdict`", "tags.`leak_certificate`"]
    want = f"/#/experiments/{experiment.experiment_id}/runs?viewStateShareKey=klinepred"
    assert view_paths(space)["tiny"] == want


def test_a_short_run_has_a_sample_of_the_machine(finished: MlflowTracker) -> None:
    metrics = finished.client.get_run(finished.run_id).data.metrics
    assert metrics["system/system_memory_usage_megabytes"] > 0.0
    assert 0.0 <= metrics["system/cpu_utilization_percentage"] <= 100.0
    assert not [thread for thread in threading.enumerate() if thread.name == "SystemMetricsMonitor"]


def test_56_scores_of_odd_symbols_are_metrics_of_the_run_each_under_its_own_name(finished: MlflowTracker) -> None:
    symbols = ("^GSPX", "GSPX", "EURUSD=X", "a b", "BTC/USD", "005930")
    sample = panel(4, ic=0.1, symbols=len(symbols))
    evaluation = judge(replace(sample, symbols=symbols))
    assert add_to_run(finished.space, finished.run_id, metrics=evaluation.metrics(), tags={}, files={})
    stored = finished.client.get_run(finished.run_id).data.metrics
    known = {original_name(name): value for name, value in stored.items()}
    for number, symbol in enumerate(symbols):
        mine = sample.symbol_M == number
        want = np.corrcoef(sample.pred_M[mine], sample.y_M[mine])[0, 1]
        assert known[f"test_ic/{symbol}"] == pytest.approx(want)
    assert len({known[f"test_ic/{symbol}"] for symbol in symbols}) == len(symbols)
    assert all(math.isfinite(value) for value in stored.values())
    assert finished.client.get_run(finished.run_id).info.status == "FINISHED"
