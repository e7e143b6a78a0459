"""In: checkpoints. Out: they load without running code, name what does not fit, survive a full disk."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from klinepred.dataset.make import Dataset
from klinepred.errors import TrainingError, UsageError
from klinepred.paths import Workspace
from klinepred.settings import ModelSettings
from klinepred.training.checkpoint import (
    checkpoint_folder,
    checkpoint_of,
    data_fingerprint,
    find_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from klinepred.training.loop import train
from tests.training.tiny import MODEL, TRAIN, Diary, fit, tiny_dataset, tiny_pipeline

ONE = TRAIN.model_copy(update={"epochs": 1})


@pytest.fixture(scope="module")
def data() -> Dataset:
    return tiny_dataset()


@pytest.fixture(scope="module")
def saved(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("checkpoint") / "run.pt"
    fit(data, ONE.model_copy(update={"precision": "fp16"}), checkpoint=place, pipeline=tiny_pipeline(ONE))
    return place


def test_a_fresh_process_loads_it_with_default_arguments(saved: Path) -> None:
    code = "import sys, torch; t = torch.load(sys.argv[1]); print(t['counters']['epoch'], t['scaler']['scale'])"
    done = subprocess.run([sys.executable, "-c", code, str(saved)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "65536.0"]


def test_it_holds_tensors_numbers_and_texts_only(saved: Path) -> None:
    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                assert type(key) in {str, int}
                walk(inner)
        elif isinstance(value, list | tuple):
            for inner in value:
                walk(inner)
        else:
            assert isinstance(value, torch.Tensor) or type(value) in {str, int, float, bool, type(None)}

    table = dict(torch.load(saved, weights_only=True))
    walk({key: dict(value) if isinstance(value, dict) else value for key, value in table.items()})
    assert {"network", "average", "optimiser", "scaler", "counters", "best", "rng", "pipeline"} <= table.keys()


def test_the_optimiser_in_it_is_the_case_studys(saved: Path) -> None:
    group = load_checkpoint(saved)["optimiser"]["param_groups"][0]
    assert group["weight_decay"] == ONE.weight_decay
    assert group["betas"] == (0.9, 0.999)


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(marker),)

    (tmp_path / "bad.pt").write_bytes(pickle.dumps(Bomb()))
    torch.save({"x": Bomb()}, tmp_path / "worse.pt")
    for name, got in (("bad.pt", "another kind"), ("worse.pt", "weights_only")):
        with pytest.raises(TrainingError, match=got):
            load_checkpoint(tmp_path / name)
    assert not marker.exists()


def test_what_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    torch.save({"weights": torch.zeros(1)}, tmp_path / "other.pt")
    with pytest.raises(TrainingError, match="format None"):
        load_checkpoint(tmp_path / "other.pt")
    with pytest.raises(TrainingError, match="no such file"):
        load_checkpoint(tmp_path / "none.pt")
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(TrainingError, match="another kind"):
        load_checkpoint(tmp_path / "text.pt")


def test_another_network_or_other_data_are_refused(data: Dataset, saved: Path) -> None:
    wide = ModelSettings.model_validate({**MODEL.model_dump(), "hidden": 9})
    with pytest.raises(TrainingError, match="another network"):
        train(data, wide, TRAIN, resume=saved)
    with pytest.raises(TrainingError, match="another data set"):
        fit(tiny_dataset(seed=1), resume=saved)


def test_labels_clipped_elsewhere_are_another_loss_though_the_data_are_the_same(data: Dataset, saved: Path) -> None:
    clipped = replace(data, settings=data.settings.model_copy(update={"label_clip": 2.0}))
    assert data_fingerprint(clipped) == data_fingerprint(data)
    with pytest.raises(TrainingError, match="another loss") as caught:
        fit(clipped, resume=saved)
    assert (caught.value.expected, caught.value.got) == ("dataset.label_clip = 6", "dataset.label_clip = 2")


def test_the_order_of_data_may_not_change_in_the_middle_of_an_epoch(
    data: Dataset, saved: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "run.pt"
    with pytest.raises(TrainingError, match="SIGINT"):
        fit(data, checkpoint=place, progress=Diary(at_step=3, then=lambda: signal.raise_signal(signal.SIGINT)))
    with pytest.raises(TrainingError, match=r"train\.batch in the middle"):
        fit(data, TRAIN.model_copy(update={"batch": 20}), resume=place)
    with caplog.at_level(logging.WARNING):  # between epochs it may, with a word
        fit(data, TRAIN.model_copy(update={"batch": 20, "epochs": 2}), resume=saved)
    assert "train.batch = 20, before 10" in caplog.text


def test_the_fingerprint_sees_every_array() -> None:
    one, two = tiny_dataset(), tiny_dataset()
    assert data_fingerprint(one) == data_fingerprint(two)
    two.part_N[5] = 3
    assert data_fingerprint(one) != data_fingerprint(two)
    two = tiny_dataset()
    two.x_NF[-1, -1] += 1e-3
    assert data_fingerprint(one) != data_fingerprint(two)


def test_a_full_disk_leaves_the_checkpoint_before_it(saved: Path, tmp_path: Path) -> None:
    place = tmp_path / "run.pt"
    place.write_bytes(saved.read_bytes())
    code = """
import resource, signal, sys
from pathlib import Path
import torch
from klinepred.errors import TrainingError
from klinepred.settings import Pipeline
from klinepred.training.checkpoint import save_checkpoint
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    state, run = {"x": torch.zeros(100_000)}, Pipeline(name="p")
    save_checkpoint(Path(sys.argv[1]), state, data="", run=run, origin={})
except TrainingError as error:
    sys.exit(str(error))
"""
    done = subprocess.run([sys.executable, "-c", code, str(place)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert str(place) in done.stderr
    assert "File too large" in done.stderr
    assert place.read_bytes() == saved.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]


def test_a_run_is_found_by_name_id_path_or_as_the_last(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    with pytest.raises(UsageError, match="train first"):
        find_checkpoint(space, "last")
    folder = checkpoint_folder(space)
    for number, name in enumerate(("demo-20260101-000000-aaaabbbb", "demo-20260102-000000-ccccdddd")):
        save_checkpoint(folder / f"{name}.pt", {}, data="", run=tiny_pipeline(), origin={})
        os.utime(folder / f"{name}.pt", (number + 1, number + 1))
    first, second = sorted(folder.glob("*.pt"))
    assert find_checkpoint(space, "last") == second
    assert find_checkpoint(space, "demo-20260101-000000") == first
    assert find_checkpoint(space, "demo-20260101-000000-aaaabbbb") == first
    assert find_checkpoint(space, "aaaabb") == first
    assert find_checkpoint(space, "ccccdddd0123456789abcdef01234567") == second
    assert find_checkpoint(space, str(first)) == first
    for wrong in ("demo", "aaaa", "zzzzzz"):
        with pytest.raises(UsageError, match="0 that fit"):
            find_checkpoint(space, wrong)


def test_a_jobs_checkpoint_is_found_though_others_trained_since(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    space = Workspace(tmp_path)
    names = {"mine": ("job 1", "a"), "of another job": ("job 2", "a"), "of another pipeline": ("job 1", "b")}
    for age, (name, (job, pipeline)) in enumerate(names.items()):
        path = checkpoint_folder(space) / f"{name}.pt"
        path.parent.mkdir(parents=True, exist_ok=True)
        run = tiny_pipeline(ONE).model_copy(update={"name": pipeline})
        save_checkpoint(path, {"ensemble": 2, "start": [], "job": job}, data="", run=run, origin={})
        os.utime(path, (1000.0 + age, 1000.0 + age))
    (checkpoint_folder(space) / "damaged.pt").write_bytes(b"none")  # the newest of all
    found = [checkpoint_of(space, job, pipeline=name) for job, name in (("job 1", "a"), ("job 2", "a"), ("job 1", "b"))]
    assert [path and path.stem for path in found] == [*names]
    assert "damaged.pt" in caplog.text
    assert checkpoint_of(space, "job 3", pipeline="a") is None
    assert checkpoint_of(space, "", pipeline="a") is None, "a process started alone is no job"
