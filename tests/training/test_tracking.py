"""In: tiny trainings in one workspace with an awkward name. Out: their MLflow runs, read back through MLflow."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from klinepred.config import load_pipeline
from klinepred.dataset.make import Dataset
from klinepred.errors import TrainingError
from klinepred.model.bundle import load_bundle
from klinepred.paths import Workspace
from klinepred.settings import Pipeline
from klinepred.training.checkpoint import find_checkpoint, load_checkpoint
from klinepred.training.origin import process_gone, process_tags
from klinepred.training.signals import TrainingStopped
from klinepred.training.tracker import Metric
from klinepred.training.tracking import MlflowTracker
from tests.training.tiny import TRAIN, Diary, equal, fit, tiny_dataset, tiny_pipeline, weights

if TYPE_CHECKING:
    from mlflow.entities import Run

REPO = Path(__file__).parents[2]
SYMBOLS = tuple(f"SYM{number:04d}" for number in range(900))  # over 6000 characters

DRIVER = """
import sys
from pathlib import Path
from klinepred.errors import KlinepredError
from klinepred.paths import Workspace
from klinepred.training.tracking import MlflowTracker
from tests.training.tiny import TRAIN, Diary, fit, tiny_dataset, tiny_pipeline
settings = TRAIN.model_copy(update={"epochs": int(sys.argv[2]), "schedule": "constant"})
tracker = MlflowTracker(Workspace(sys.argv[1]), tiny_pipeline(settings))
diary = Diary(at_step=11, then=lambda: print("eleven", flush=True))
try:
    fit(tiny_dataset(), settings, tracker=tracker, progress=diary)
except KlinepredError as error:
    print(tracker.run_id, len(diary.steps))
    print(error.do)
    sys.exit(error.exit_code)
print(tracker.run_id, len(diary.steps))
"""


@pytest.fixture(scope="module")
def data() -> Dataset:
    return tiny_dataset()


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield Workspace(tmp_path_factory.mktemp("tracking") / "kline été" / "№ 1")


@pytest.fixture(scope="module")
def finished(space: Workspace, data: Dataset) -> MlflowTracker:
    tracker = MlflowTracker(space, tiny_pipeline(symbols=SYMBOLS))
    fit(data, tracker=tracker)
    return tracker


def read(tracker: MlflowTracker) -> Run:
    return tracker.client.get_run(tracker.run_id)


def driver(space: Workspace, epochs: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-W", "error", "-c", DRIVER, str(space.root), str(epochs)]
    env = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=REPO, env={**env, "OMP_NUM_THREADS": "1"}, stdout=pipe, stderr=pipe, text=True)


def test_a_finished_run_tells_everything(finished: MlflowTracker, data: Dataset) -> None:
    run = read(finished)
    assert run.info.status == "FINISHED"
    assert finished.client.get_experiment(run.info.experiment_id).name == "klinepred/tiny"
    assert run.data.params["train.lr"] == "0.01"
    assert run.data.params["rows_train"] == str(int(data.mask("train").sum()))
    assert run.data.params["model.hidden"] == "8"
    tags = run.data.tags
    assert (tags["device"], tags["precision"]) == ("cpu", "fp32")
    assert tags["precision_reason"] == "mixed precision was not asked for"
    assert tags["klinepred.version"]
    assert tags["mlflow.source.git.commit"].startswith("klinepred ")  # this workspace lies in no repository
    assert {"train_loss", "val_loss", "val_ic", "lr", "labelled_bars_per_s", "epoch_s"} <= run.data.metrics.keys()
    history = finished.client.get_metric_history(finished.run_id, "val_loss")
    assert [metric.step for metric in history] == [1, 2, 3]
    steps = finished.client.get_metric_history(finished.run_id, "gradient/zero_share/lstm.l0")
    assert [metric.step for metric in steps] == list(range(1, 25))


def test_the_whole_configuration_is_an_artifact_and_parameters_are_short(
    finished: MlflowTracker, tmp_path: Path
) -> None:
    folder = Path(finished.client.download_artifacts(finished.run_id, "", str(tmp_path)))
    want = tiny_pipeline(symbols=SYMBOLS)
    assert Pipeline.model_validate(json.loads((folder / "config.json").read_text())) == want
    assert load_pipeline(folder / "config.toml") == want
    assert max(len(value) for value in read(finished).data.params.values()) <= 250
    assert "data.symbols" not in read(finished).data.params


def test_bundle_and_pictures_are_artifacts_inside_the_workspace(finished: MlflowTracker, space: Workspace) -> None:
    (folder,) = space.artifacts.glob(f"*/{finished.run_id}/artifacts")
    outputs = finished.client.get_run(finished.run_id).outputs
    assert outputs is not None
    (model,) = outputs.model_outputs
    place = space.artifacts / "tiny" / "models" / model.model_id / "artifacts"
    (bundle,) = (place / "artifacts").iterdir()
    assert load_bundle(bundle).provenance["run_id"] == finished.run_id
    for name in ("loss.png", "amp.png"):
        assert (folder / "plots" / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert str(space.root) in str(folder)
    assert (space.mlruns / "mlflow.db").is_file()


def test_numbers_may_be_added_after_the_end(finished: MlflowTracker) -> None:
    names = ("mae/^GSPX", "mae/GSPX", "mae/EURUSD=X")
    finished.log_metrics([Metric(name, float(number), 1, 0) for number, name in enumerate(names)])
    finished.log_metrics([Metric("bad", float("nan"), 1, 0), Metric("worse", float("inf"), 1, 0)])
    finished.log_metrics([Metric("many", float(step), step, 0) for step in range(2500)])
    finished.set_tags({"verdict": "NO EDGE"})
    got = read(finished).data
    assert (got.metrics["mae/_x5e_GSPX"], got.metrics["mae/GSPX"], got.metrics["mae/EURUSD_x3d_X"]) == (0.0, 1.0, 2.0)
    assert not {"bad", "worse"} & got.metrics.keys()
    assert len(finished.client.get_metric_history(finished.run_id, "many")) == 2500
    assert got.tags["verdict"] == "NO EDGE"
    assert read(finished).info.status == "FINISHED"


def test_mlflows_global_state_is_left_alone(finished: MlflowTracker, space: Workspace) -> None:
    import mlflow

    assert mlflow.active_run() is None
    assert mlflow.get_tracking_uri() != space.tracking_uri
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_runs_left_by_a_process_that_is_gone_are_killed_and_living_ones_kept(finished: MlflowTracker) -> None:
    client, experiment = finished.client, read(finished).info.experiment_id
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    gone = client.create_run(experiment, tags={**process_tags(Path()), "klinepred.pid": str(child.pid)})
    alive = client.create_run(experiment, tags=process_tags(Path()))
    reused = client.create_run(experiment, tags={**process_tags(Path()), "klinepred.process_start": "1000"})
    elsewhere = client.create_run(
        experiment, tags={**process_tags(Path()), "klinepred.host": "b", "klinepred.pid": "1"}
    )
    foreign = client.create_run(experiment)
    tracker = MlflowTracker(finished.space, tiny_pipeline())
    tracker.start(None, params={}, tags={}, resume=None)
    tracker.end("FINISHED")
    status = [client.get_run(r.info.run_id).info.status for r in (gone, alive, reused, elsewhere, foreign)]
    assert status == ["KILLED", "RUNNING", "KILLED", "RUNNING", "RUNNING"]
    for run in (alive, elsewhere, foreign):
        client.set_terminated(run.info.run_id, "KILLED")


def test_a_process_is_known_by_its_start() -> None:
    tags = process_tags(Path())
    assert not process_gone(tags)
    assert abs(psutil.Process().create_time() - float(tags["klinepred.process_start"])) < 1.0
    assert not process_gone({})


def test_resume_continues_the_run_and_a_changed_setting_opens_a_new_one(
    space: Workspace, data: Dataset, finished: MlflowTracker
) -> None:
    want = weights(fit(data))
    run = tiny_pipeline(name="resumed")
    first = MlflowTracker(space, run)
    with pytest.raises(TrainingStopped, match="SIGINT") as stopped:
        fit(data, tracker=first, progress=Diary(at_step=13, then=lambda: signal.raise_signal(signal.SIGINT)))
    assert read(first).info.status == "KILLED"
    assert stopped.value.do == f"continue with --resume {first.run_name}-{first.run_id[:8]}"
    place = find_checkpoint(space, first.run_name)
    assert load_checkpoint(place)["run_id"] == first.run_id
    second = MlflowTracker(space, run)
    assert equal(weights(fit(data, tracker=second, resume=place)), want)
    assert second.run_id == first.run_id
    assert read(second).info.status == "FINISHED"
    steps = [metric.step for metric in second.client.get_metric_history(second.run_id, "step/loss")]
    assert steps == list(range(1, 25))
    third = MlflowTracker(space, run)
    fit(data, TRAIN.model_copy(update={"lr": 0.5, "epochs": 4}), tracker=third, resume=place)
    assert third.run_id != first.run_id
    assert read(third).data.tags["klinepred.resumed_from"] == first.run_id
    assert read(third).data.params["train.lr"] == "0.5"


def test_a_run_that_another_process_still_trains_is_not_taken_up(space: Workspace, finished: MlflowTracker) -> None:
    run = tiny_pipeline(name="busy")
    first = MlflowTracker(space, run)
    first.start(run, params={}, tags={}, resume=None)
    first.set_tags({"klinepred.pid": str(os.getppid())})
    first.set_tags({"klinepred.process_start": f"{psutil.Process(os.getppid()).create_time():.0f}"})
    with pytest.raises(TrainingError, match="still training"):
        MlflowTracker(space, run).start(run, params={}, tags={}, resume=first.run_id)
    first.end("KILLED")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_signal_leaves_a_killed_run_and_a_usable_checkpoint(
    number: signal.Signals, code: int, space: Workspace, finished: MlflowTracker
) -> None:
    child = driver(space, 1_000_000)
    assert child.stdout is not None
    assert child.stdout.readline() == "eleven\n"
    child.send_signal(number)
    out, err = child.communicate(timeout=120)
    assert (child.returncode, err) == (code, "")
    run_id, steps = out.split()[:2]
    assert finished.client.get_run(run_id).info.status == "KILLED"
    place = find_checkpoint(space, run_id)
    assert out.splitlines()[1] == f"continue with --resume {place.stem}"
    assert load_checkpoint(place)["counters"]["tried"] == int(steps)
    logged = finished.client.get_metric_history(run_id, "step/loss")
    assert max(metric.step for metric in logged) == int(steps)


def test_a_process_that_is_killed_leaves_a_run_that_the_next_start_marks_killed(
    space: Workspace, finished: MlflowTracker
) -> None:
    child = driver(space, 1_000_000)
    assert child.stdout is not None
    assert child.stdout.readline() == "eleven\n"
    child.kill()
    child.communicate(timeout=120)
    client = finished.client
    (left,) = client.search_runs([read(finished).info.experiment_id], "attributes.status = 'RUNNING'")
    assert left.data.tags["klinepred.pid"] == str(child.pid)
    tracker = MlflowTracker(space, tiny_pipeline())
    tracker.start(None, params={}, tags={}, resume=None)
    tracker.end("FINISHED")
    assert client.get_run(left.info.run_id).info.status == "KILLED"


def test_three_trainings_start_together_in_a_fresh_workspace_without_a_word(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "fresh")
    three = [driver(space, 1) for _ in range(3)]
    answers = [child.communicate(timeout=240) for child in three]
    assert [child.returncode for child in three] == [0, 0, 0], answers
    assert [err for _, err in answers] == ["", "", ""]
    assert len({out.split()[0] for out, _ in answers}) == 3
    with contextlib.closing(_database(space)) as store:
        assert store.execute("select status, count(*) from runs group by 1").fetchall() == [("FINISHED", 3)]
        assert store.execute("select count(*) from experiments where name = 'klinepred/tiny'").fetchall() == [(1,)]


def test_a_moved_workspace_finds_its_artifacts_and_writes_new_ones_beside_them(
    finished: MlflowTracker, tmp_path: Path
) -> None:
    moved = Workspace(tmp_path / "elsewhere % #2")
    shutil.copytree(finished.space.root, moved.root)
    before = sorted(path for path in finished.space.artifacts.rglob("*"))
    tracker = MlflowTracker(moved, tiny_pipeline())
    tracker.start(None, params={}, tags={}, resume=None)
    tracker.end("FINISHED")
    for run_id in (finished.run_id, tracker.run_id):
        uri = tracker.client.get_run(run_id).info.artifact_uri
        assert uri == f"{moved.artifacts.as_uri()}/tiny/{run_id}/artifacts"
        assert (moved.artifacts / "tiny" / run_id / "artifacts" / "config.json").is_file()
    for one in (finished, tracker):  # MLflow's own experiment does not point to where a command was typed
        assert one.client.get_experiment("0").artifact_location == f"{one.space.artifacts.as_uri()}/Default"
    shutil.rmtree(moved.artifacts / "tiny" / finished.run_id)
    with pytest.raises(Exception, match="config"):  # MLflow's own; it looks nowhere else
        tracker.client.download_artifacts(finished.run_id, "config.json")
    assert sorted(path for path in finished.space.artifacts.rglob("*")) == before
    assert read(finished).info.artifact_uri.startswith(finished.space.artifacts.as_uri())


def _database(space: Workspace) -> Any:
    import sqlite3

    return sqlite3.connect(space.mlruns / "mlflow.db")
