"""In: a small market. Out: claims that a search ends in a pipeline to train, whoever computes it and who is killed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from klinepred.cli import main
from klinepred.config import load_pipeline
from klinepred.paths import Workspace
from klinepred.training.review import count_looks
from tests.conftest import Typed
from tests.docs.schemas import fits
from tests.engine.clusters import alone
from tests.shallow import shallow_audit
from tests.small_market import small_space

ROOT = Path(__file__).parents[1]
SEARCH = """epochs = 3
[tune]
trials = 3
space = ["train.lr=1e-3..1e-2|log", "model.dropout=0..0.3"]
pruner = "none"
"""
ALL = pytest.mark.timeout(900)


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    with shallow_audit():
        yield


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a search that nothing interrupted; its trials are in `here.json`."""
    folder = small_space(tmp_path_factory.mktemp("wörk space"), train=SEARCH)
    rows, said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with redirect_stdout(rows), redirect_stderr(said):
        code = main(tune_words(folder)[2:])
    assert code == 0, said.getvalue()
    (folder / "here.json").write_bytes(rows.buffer.getvalue())
    (folder / "here.txt").write_text(said.getvalue(), encoding="utf-8")
    return folder


def tune_words(space: Path, *more: str) -> list[str]:
    words = ["-m", "klinepred", "tune", "-w", str(space), "--format", "json", *more]
    return words if "--resume" in more else [*words, "-p", str(space / "small.toml")]


def rows_here(space: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((space / "here.json").read_text(encoding="utf-8"))
    return rows


def bare(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in ("run_id", "val_loss")} for row in rows]


def losses(rows: list[dict[str, Any]]) -> list[float]:
    return [row["val_loss"] for row in rows]


def test_a_search_ends_with_a_table_a_pipeline_and_what_to_do_next(space: Path) -> None:
    rows, said = rows_here(space), (space / "here.txt").read_text(encoding="utf-8")
    assert [set(row) for row in rows] == [
        {"trial", "outcome", "val_loss", "epochs", "train.lr", "model.dropout", "run_id"}
    ] * 3
    assert sorted(row["trial"] for row in rows) == [1, 2, 3]
    fits("tune", rows)
    assert losses(rows) == sorted(losses(rows))
    own = next(row for row in rows if row["trial"] == 1)
    assert (own["train.lr"], own["model.dropout"]) == (1e-3, 0.1)
    place = space / "pipelines" / "small-tuned.toml"
    best, before = load_pipeline(place), load_pipeline(space / "small.toml")
    assert (best.train.lr, best.model.dropout) == (rows[0]["train.lr"], rows[0]["model.dropout"])
    assert best.name == before.name == "small"
    assert best.ignored() == []
    settings = {"lr": before.train.lr}
    assert best.train.model_copy(update=settings) == before.train
    assert (best.data, best.dataset, best.evaluate, best.tune) == (
        before.data,
        before.dataset,
        before.evaluate,
        before.tune,
    )
    assert said.count("validation loss") == 3
    words = said.splitlines()[-1].removeprefix("next: klinepred ")
    assert words.startswith("train -p ")
    assert str(place) in words


def test_training_the_tuned_pipeline_gives_the_loss_of_its_trial_and_the_verdict_counts_all_trials(
    space: Path, typed: Typed
) -> None:
    from mlflow import MlflowClient

    code, out, err = typed("train", "-q", "-p", str(space / "pipelines" / "small-tuned.toml"), "-w", str(space))
    assert code == 0, err
    run_id = out.split()[-1]
    workspace = Workspace(space)
    client = MlflowClient(tracking_uri=workspace.tracking_uri)
    run = client.get_run(run_id)
    rows = rows_here(space)
    assert run.data.metrics["best_val_loss"] == pytest.approx(rows[0]["val_loss"], abs=1e-9)
    trials = [client.get_run(row["run_id"]) for row in rows]
    assert {trial.info.experiment_id for trial in trials} == {run.info.experiment_id}
    (parent,) = {trial.data.tags["mlflow.parentRunId"] for trial in trials}
    study = client.get_run(parent)
    assert (study.info.status, study.data.tags["klinepred.kind"]) == ("FINISHED", "tune")
    assert study.data.tags["leak_certificate"] == trials[0].data.tags["leak_certificate"] == "passed"
    assert len(client.get_metric_history(trials[0].info.run_id, "val_loss")) == 3
    day = run.data.tags["test_after"]
    assert count_looks(workspace, run_id, test_after=day) == 4  # three trials, and the training just done


def test_the_tuned_file_is_not_overwritten(space: Path, typed: Typed) -> None:
    code, out, err = typed("tune", "-p", str(space / "small.toml"), "-w", str(space))
    assert (code, out) == (2, "")
    assert "--force" in err


@ALL
def test_a_search_that_is_stopped_and_then_killed_goes_on_to_the_same_trials(space: Path, typed: Typed) -> None:
    from mlflow import MlflowClient

    place = space / "again.toml"
    process = searching(space, "-o", str(place))
    assert seen(space, "trial-2.pt"), process.communicate()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120.0)
    assert process.returncode == 143, err
    assert "klinepred tune --resume small-tune-" in err
    client = MlflowClient(tracking_uri=Workspace(space).tracking_uri)
    home = client.search_experiments(filter_string="name = 'klinepred/small'")[0].experiment_id
    states = {run.info.status for run in client.search_runs([home])}
    assert states == {"FINISHED", "KILLED"}
    process = searching(space, "--resume", "-o", str(place))
    assert seen(space, "trial-3.pt"), process.communicate()
    process.kill()
    process.communicate(timeout=120.0)
    assert not place.exists()
    code, out, err = typed(*tune_words(space, "--resume", "-o", str(place))[2:])
    assert code == 0, err
    rows = json.loads(out)
    assert bare(rows) == bare(rows_here(space))
    assert losses(rows) == losses(rows_here(space))
    assert len({row["run_id"] for row in rows}) == 3
    assert place.is_file()


def searching(space: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *tune_words(space, *more)],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def seen(space: Path, name: str, *, wait_s: float = 300.0) -> bool:
    """Whether a checkpoint of that name comes to lie below the studies of the workspace."""
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        if any((space / "mlruns" / "tune").glob(f"*/{name}")):
            return True
        time.sleep(0.02)
    return False


def kill_a_trial(space: Path) -> bool:
    """Kill a worker of Ray Tune once its trial has a checkpoint."""
    if not seen(space, "trial-*.pt"):
        return False
    for process in psutil.Process().children(recursive=True):  # never one of another cluster of the machine
        with suppress(psutil.Error):
            if "ray::ImplicitFunc" in " ".join(process.cmdline()):
                process.kill()
                return True
    return False


@ALL
def test_ray_tries_the_same_to_the_same_losses_though_a_worker_is_killed(space: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_a_trial, space)
        words = tune_words(space, "-o", str(space / "by-ray.toml"), "--engine", "ray", "--num-workers", "2")
        done = alone(*words, wait_s=550.0)
        assert killing.result(), done.stderr
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    here = rows_here(space)
    assert sorted(map(str, bare(rows))) == sorted(map(str, bare(here)))
    by_trial = {row["trial"]: row["val_loss"] for row in here}
    assert losses(rows) == pytest.approx([by_trial[row["trial"]] for row in rows], abs=1e-5)
    assert done.stderr.count("validation loss") == 3
    assert load_pipeline(space / "by-ray.toml").train.lr == pytest.approx(rows[0]["train.lr"])
