"""In: results of checks in a workspace. Out: for what they count, and what `train` says without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from klinepred.dataset.make import Dataset
from klinepred.paths import Workspace
from klinepred.settings import Pipeline
from klinepred.trial import passes
from klinepred.trial.passes import find_result, folder_of, keep_result, machine, subject_of, untried
from tests.training.tiny import MODEL, TRAIN, tiny_dataset, tiny_pipeline

CPU = torch.device("cpu")
RUN = tiny_pipeline()


@pytest.fixture(scope="module")
def data() -> Dataset:
    return tiny_dataset()


@pytest.fixture
def space(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setattr(passes, "LARGE", 1000)
    return Workspace(tmp_path)


def keep(space: Workspace, data: Dataset, run: Pipeline = RUN, **verdicts: str) -> None:
    subject = subject_of(data, model=run.model, train=run.train, device=CPU)
    keep_result(space, subject, verdicts=verdicts or {"fp32": "parity", "bf16": "parity"}, about={"run_id": "r1"})


def changed(section: str, **update: object) -> Pipeline:
    return RUN.model_copy(update={section: getattr(RUN, section).model_copy(update=update)})


def test_a_large_network_without_a_check_is_named_with_the_command(space: Workspace, data: Dataset) -> None:
    line = untried(space, RUN, data)
    assert line is not None
    assert "no amp-check of it has passed on this device and these data" in line
    assert line.endswith("klinepred amp-check -p tiny (with the same --set)")


def test_a_small_network_needs_none(space: Workspace, data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "LARGE", 10_000_000)
    assert untried(space, RUN, data) is None


def test_a_passed_check_is_enough(space: Workspace, data: Dataset) -> None:
    keep(space, data)
    assert untried(space, RUN, data) is None
    assert untried(space, changed("train", precision="bf16"), data) is None
    assert untried(space, changed("train", epochs=99, seed=3, patience=9, log_every=2, weight_decay=0.0), data) is None
    assert untried(space, changed("model", preset="my-copy-of-it"), data) is None


@pytest.mark.parametrize(
    ("section", "update", "other"),
    [
        ("train", {"lr": 0.5}, "another training"),
        ("train", {"batch": 11}, "another training"),
        ("train", {"init_scale": 1.0}, "another training"),
        ("train", {"loss": "huber"}, "another training"),
        ("model", {"hidden": 9}, ""),
    ],
)
def test_what_changes_gradients_needs_a_check_of_its_own(
    section: str, update: dict[str, object], other: str, space: Workspace, data: Dataset
) -> None:
    keep(space, data)
    line = untried(space, changed(section, **update), data)
    assert line is not None
    assert other in line


def test_another_bar_device_or_torch_needs_a_check_of_its_own(
    space: Workspace, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(space, data)
    other = replace(data, y_N=data.y_N.copy())
    other.y_N[0] += 1.0
    assert "(the last one was with another data)" in (untried(space, RUN, other) or "")
    monkeypatch.setattr(passes, "machine", lambda _: "cpu (another)")
    monkeypatch.setattr(torch, "__version__", "9.9")
    assert "(the last one was with another device and torch)" in (untried(space, RUN, data) or "")


def test_a_precision_that_did_not_pass_is_named_with_the_reason(space: Workspace, data: Dataset) -> None:
    keep(space, data, fp32="parity", bf16="unstable: step 3: norm inf")
    assert untried(space, RUN, data) is None
    line = untried(space, changed("train", precision="bf16"), data) or ""
    assert "did not pass bf16 (unstable: step 3: norm inf); see MLflow run r1" in line
    assert "(not tried)" in (untried(space, changed("train", precision="fp16"), data) or "")


def test_a_newer_check_takes_the_place_of_the_older(space: Workspace, data: Dataset) -> None:
    keep(space, data, fp32="unstable")
    keep(space, data, fp32="parity")
    assert len(list(folder_of(space).iterdir())) == 1
    assert untried(space, RUN, data) is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"subject": 3, "verdicts": {}}', "\x00"])
def test_a_damaged_result_does_not_count_and_is_said(
    text: str, space: Workspace, data: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    keep(space, data)
    (path,) = folder_of(space).iterdir()
    path.write_text(text)
    subject = subject_of(data, model=MODEL, train=TRAIN, device=CPU)
    assert find_result(space, subject) is None
    assert "it does not count" in caplog.text
    assert "no amp-check" in (untried(space, RUN, data) or "")


def test_a_cpu_is_named_by_its_model() -> None:
    assert machine(CPU).startswith("cpu (")
    assert len(machine(CPU)) > len("cpu ()")
