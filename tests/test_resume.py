"""In: a simulated store that changes while a run is interrupted. Out: resumed runs end where they would have ended."""

from __future__ import annotations

import logging
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
from deltalake import DeltaTable

import klinepred as kp
import klinepred.model.bundle as room
from klinepred.bars.ingest import ingest
from klinepred.bars.store import store_version
from klinepred.bars.undo import delete_bars
from klinepred.errors import ModelError, TrainingError
from klinepred.paths import Workspace, write_atomic
from klinepred.pipeline import Trained, resumed_pipeline, train_model
from klinepred.settings import Pipeline
from klinepred.training.named import named_versions
from klinepred.training.review import tags_of
from klinepred.training.signals import TrainingStopped
from tests.conftest import Typed
from tests.shallow import shallow_audit
from tests.training.tiny import Diary, equal, weights

NOW = datetime(2026, 4, 30, 22, tzinfo=UTC)
SETTINGS = (
    "data.simulate.symbols=6",
    "data.simulate.start=2026-02-02",
    "model.preset=lstm-small",
    "model.hidden=8",
    "train.epochs=2",
    "train.batch=32",
    "train.device=cpu",
)


def pipeline(*more: str, end: str = "2026-04-24") -> Pipeline:
    return kp.load_pipeline("demo", overrides=[*SETTINGS, f"data.simulate.end={end}", *more])


def take_in(space: Workspace, *, end: str, seed: int = 7) -> None:
    """Bars up to `end`; another seed gives other prices for all of them."""
    report = ingest(pipeline(f"data.simulate.seed={seed}", end=end).data, space, now=NOW)
    assert report.exit_code == 0, report.summary()


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    """One thread, and the shallowest of audits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch, shallow_audit():
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A workspace whose run was stopped after five steps; what continues it."""
    space = Workspace(tmp_path_factory.mktemp("stopped"))
    take_in(space, end="2026-04-24")
    diary = Diary(at_step=5, then=lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(TrainingStopped) as caught:
        train_model(pipeline(), space, progress=diary)
    return space.root, caught.value.do.rpartition(" ")[2]


@pytest.fixture
def space(stopped: tuple[Path, str], tmp_path: Path) -> Workspace:
    """A copy of it."""
    shutil.copytree(stopped[0], tmp_path / "w")
    return Workspace(tmp_path / "w")


@pytest.fixture(scope="module")
def whole(stopped: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run on the same bars that nothing interrupted."""
    space = Workspace(tmp_path_factory.mktemp("whole"))
    shutil.copytree(stopped[0] / "data", space.data)
    return train_model(pipeline(), space)


def test_newer_bars_do_not_change_what_a_resumed_run_learns_from(
    whole: Trained, space: Workspace, stopped: tuple[Path, str], caplog: pytest.LogCaptureFixture
) -> None:
    seen = store_version(space)
    take_in(space, end="2026-04-29")
    assert store_version(space) != seen
    with caplog.at_level(logging.WARNING):
        done = train_model(pipeline(), space, resume="last")
    assert f"goes on with version {seen}, which it began with" in caplog.text
    assert "last digits" not in caplog.text
    assert equal(weights(done.bundle), weights(whole.bundle))
    assert done.bundle.scaler.to_dict() == whole.bundle.scaler.to_dict()
    assert done.bundle.provenance["store_version"] == seen
    assert stopped[1].endswith(done.bundle.run_id[:8])
    assert tags_of(space, done.bundle.run_id)["store_version"] == str(seen)
    assert seen in named_versions(space)
    assert list(space.trained.glob("*/bundle.json"))


def test_bars_that_were_revised_or_deleted_since_are_those_of_then(
    whole: Trained, space: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    delete_bars(space, symbols=["SIM003"])
    with caplog.at_level(logging.WARNING):
        done = train_model(pipeline(), space, resume="last")
    for name, weight in weights(done.bundle).items():
        torch.testing.assert_close(weight, weights(whole.bundle)[name], atol=1e-4, rtol=1e-3)
    assert done.bundle.universe == whole.bundle.universe


def test_a_store_without_the_bars_of_then_is_refused_with_what_to_do(space: Workspace) -> None:
    seen = store_version(space)
    before = set(DeltaTable(space.data / "bars").file_uris())
    delete_bars(space, symbols=["SIM003"])
    (gone, *_) = before - set(DeltaTable(space.data / "bars").file_uris())
    Path(gone).unlink()
    with pytest.raises(TrainingError, match=f"store version {seen}, with which the run began") as caught:
        train_model(pipeline(), space, resume="last")
    assert "start a new run" in caught.value.do


def test_resume_alone_takes_the_runs_own_pipeline(space: Workspace, stopped: tuple[Path, str], typed: Typed) -> None:
    _, name = stopped
    assert resumed_pipeline(space, name, overrides=("train.epochs=3",)) == pipeline("train.epochs=3")
    code, out, err = typed("train", "--resume", name, "-w", str(space.root))
    assert code == 0, err
    assert out.splitlines()[0].startswith("model demo-")
    assert name.endswith(out.splitlines()[1].split()[1][:8])
    code, _, err = typed("train", "--resume", name, "-w", str(space.root))  # it has ended: no step is left
    assert code == 0
    assert "nothing is left to train" in err
    assert typed("train", "--resume", name, "-w", str(space.root), "-q")[::2] == (0, "")
    assert len(list(space.trained.glob("*/bundle.json"))) == 1  # and no second model
    assert status_of(space) == ["FINISHED"]


def test_a_models_folder_that_cannot_be_written_leaves_the_run_failed_and_resumable(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = write_atomic

    def full(path: Path, content: bytes | str) -> None:
        if space.trained in path.parents:
            raise OSError(28, "No space left on device", str(path))
        true(path, content)

    monkeypatch.setattr(room, "write_atomic", full)
    with pytest.raises(ModelError, match="No space left on device") as caught:
        train_model(pipeline(), space, resume="last")
    assert "resume the run" in caught.value.do
    assert status_of(space) == ["FAILED"]
    assert list(space.trained.glob("*/bundle.json")) == []
    monkeypatch.undo()
    done = train_model(pipeline(), space, resume="last")
    assert done.folder.is_dir()
    assert status_of(space) == ["FINISHED"]


def status_of(space: Workspace) -> list[str]:
    with closing(sqlite3.connect(space.mlruns / "mlflow.db")) as store:
        return [str(row[0]) for row in store.execute("select status from runs")]
