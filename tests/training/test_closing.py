"""In: trainings that are killed after their last step. Out: resumed, a run has one model, one version, and an end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from klinepred.model.shelf import list_models
from klinepred.paths import Workspace
from klinepred.pipeline.finished import finished_model
from klinepred.training.checkpoint import find_checkpoint
from tests.training.tiny import TRAIN, tiny_pipeline

REPO = Path(__file__).parents[2]

# Trains, or goes on with what the workspace has, and is killed where it would call what `sys.argv[2]` names.
CHILD = """
import os, pkgutil, signal, sys
from dataclasses import replace
from klinepred.model.bundle import save_bundle
from klinepred.model.shelf import shelf_name
from klinepred.paths import Workspace
from klinepred.pipeline.finished import finished_model
from klinepred.training.checkpoint import find_checkpoint
from klinepred.training.tracking import MlflowTracker
from tests.training.tiny import TRAIN, fit, tiny_dataset, tiny_pipeline
space, run = Workspace(sys.argv[1]), tiny_pipeline(TRAIN.model_copy(update={"epochs": 1}))

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def shelve(bundle):
    save_bundle(replace(bundle, name=shelf_name(bundle)), space.trained / shelf_name(bundle))

owner, _, name = sys.argv[2].rpartition(".")
setattr(pkgutil.resolve_name(owner), name, die)
begun = find_checkpoint(space, "last") if (space.mlruns / "checkpoints").is_dir() else None
if begun is None or finished_model(space, begun, run) is None:
    fit(tiny_dataset(), run.train, tracker=MlflowTracker(space, run), resume=begun, shelve=shelve)
"""


def killed(space: Workspace, at: str) -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, str(space.root), at], cwd=REPO, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr


def test_a_run_killed_anywhere_between_its_last_step_and_its_end_has_one_model_and_one_version(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    space = Workspace(tmp_path / "w")
    run = tiny_pipeline(TRAIN.model_copy(update={"epochs": 1}))
    client = MlflowClient(tracking_uri=space.tracking_uri)
    killed(space, "mlflow.MlflowClient.log_model_artifacts")  # MLflow knows of a model that is not there
    assert list_models(space) == []
    killed(space, "klinepred.training.closing.log_plots")  # the model lies on the shelf, the run says RUNNING
    (entry,) = list_models(space)
    run_id = str(entry.table["provenance"]["run_id"])
    assert client.get_run(run_id).info.status == "RUNNING"
    assert list(client.search_model_versions(f"run_id = '{run_id}'")) == []
    killed(space, "mlflow.MlflowClient.set_registered_model_alias")  # the version is made, and nobody's candidate
    place = find_checkpoint(space, "last")
    for _ in range(2):
        assert finished_model(space, place, run) == entry.folder
    assert [one.name for one in list_models(space)] == [entry.name]
    ended = client.get_run(run_id)
    assert ended.info.status == "FINISHED"
    (version,) = client.search_model_versions(f"run_id = '{run_id}'")
    assert client.get_model_version_by_alias("klinepred-tiny", "candidate").version == version.version
    (model,) = client.search_logged_models([ended.info.experiment_id])
    assert (str(model.status), model.tags["bundle"], model.model_id) == ("READY", entry.name, version.tags["model_id"])
    assert ended.outputs is not None
    assert [one.model_id for one in ended.outputs.model_outputs] == [model.model_id]
