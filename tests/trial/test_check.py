"""In: a tiny dataset. Out: the whole check on it: against the true training, its report, its record."""

from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from klinepred.dataset.make import Dataset
from klinepred.errors import ConfigError
from klinepred.settings import ModelSettings, Pipeline, TrainSettings
from klinepred.training.loop import train as learn
from klinepred.training.signals import TrainingStopped
from klinepred.trial import measure
from klinepred.trial.check import check_precisions
from klinepred.trial.memory import peak_mib
from klinepred.trial.race import precisions
from klinepred.trial.report import TrialReport
from tests.training.tiny import MODEL, TRAIN, Diary, Memory, tiny_dataset, tiny_pipeline

STEPS = 8  # one epoch of 72 sequences in batches of 10
KEYS = {
    *("passed", "recommendation", "flags", "reason", "pipeline", "preset", "device", "parameters", "steps", "batch"),
    *("rows_compared", "precisions", "pure_fp16", "probes", "losses", "limits", "run_id"),
}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return tiny_dataset()


@pytest.fixture(autouse=True)
def _no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = {"fp32": 100.0, "bf16": 80.0, "fp16": None}
    monkeypatch.setattr(measure, "peak_mib", lambda **given: memory[given["precision"].name])


def pipeline(**train: object) -> Pipeline:
    run = tiny_pipeline(TrainSettings.model_validate({**TRAIN.model_dump(), **train}))
    return run.model_copy(update={"model": MODEL.model_copy(update={"dropout": 0.0})})


class Recorder(Memory):
    """Also keeps tags."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, str] = {}

    def set_tags(self, tags: Mapping[str, str]) -> None:
        self.tags |= tags


@pytest.fixture(scope="module")
def recorded(data: Dataset) -> tuple[TrialReport, Recorder]:
    tracker = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        memory = {"fp32": 100.0, "bf16": 80.0}
        patch.setattr(measure, "peak_mib", lambda **given: memory[given["precision"].name])
        return check_precisions(data, pipeline(), steps=STEPS, tracker=tracker), tracker


def test_the_fp32_lane_is_the_training_itself(data: Dataset, recorded: tuple[TrialReport, Recorder]) -> None:
    true = Memory()
    run = pipeline(epochs=1, ema=0.0)
    learn(data, run.model, run.train, tracker=true)
    assert list(recorded[0].trial.curves["fp32"].losses) == true.series("step/loss")


def test_what_was_measured_of_each_precision(recorded: tuple[TrialReport, Recorder]) -> None:
    trial = recorded[0].trial
    fp16, bf16 = trial.others
    assert (trial.base.steps, fp16.steps, bf16.steps) == (STEPS, 0, STEPS)
    assert (trial.base.cosine, trial.base.diff_bps, trial.base.sign_flips, trial.base.speedup) == (1.0, 0.0, 0.0, 1.0)
    assert 0.999 < bf16.cosine < 1.0
    assert 0.0 < bf16.diff_bps < trial.yardstick.diff_bps
    assert bf16.diff_bps <= bf16.diff_p99_bps
    assert abs(bf16.val_loss / trial.base.val_loss - 1.0) < 1e-3
    assert 0.99999 < fp16.cosine <= 1.0
    assert math.isnan(fp16.step_ms)
    assert trial.curves["bf16"].losses[0] == pytest.approx(trial.curves["fp32"].losses[0], rel=1e-3)
    assert trial.curves["bf16"].losses != trial.curves["fp32"].losses
    assert [step for step, _ in trial.probes["bf16"]] == [1, 5, 8]
    assert trial.rows == 6 * 3 * 11  # symbols, sessions of validation, labelled bars of each
    assert 0.0 < trial.naive.lost_updates < 1.0
    assert 0.0 < trial.naive.below_normal < 1.0


def test_the_report_is_json_with_these_keys_and_no_nan(recorded: tuple[TrialReport, Recorder]) -> None:
    table = json.loads(json.dumps(recorded[0].to_dict(), allow_nan=False))
    assert table.keys() == KEYS
    rows = {row["precision"]: row for row in table["precisions"]}
    assert list(rows) == ["fp32", "fp16", "bf16", "fp32, other order"]
    assert rows["fp16"]["step_ms"] is None
    assert rows["bf16"]["memory_ratio"] == 0.8
    assert (rows["fp16"]["verdict"], rows["bf16"]["verdict"]) == ("only probed", "parity")
    assert table["batch"] == {"sequences": 10, "bars": 12, "features": 50}
    assert table["passed"] is True
    assert table["recommendation"] in ("fp32", "bf16")


def test_the_record_has_curves_numbers_tags_and_files(recorded: tuple[TrialReport, Recorder]) -> None:
    report, tracker = recorded
    assert tracker.status == "FINISHED"
    assert len(tracker.series("bf16/loss")) == len(tracker.series("yardstick/loss")) == STEPS
    assert tracker.series("bf16/cosine") == [report.trial.others[1].cosine]
    assert tracker.tags["passed"] == "fp32, bf16"
    assert tracker.tags["recommendation"] == report.advice.precision
    assert tracker.folders["amp-check"] == ["amp-check.json", "amp-check.png"]


def test_fp16_on_a_cpu_is_trained_where_it_is_asked_for(data: Dataset) -> None:
    report = check_precisions(data, pipeline(precision="fp16"), steps=STEPS)
    fp16 = report.trial.others[0]
    assert (fp16.name, fp16.steps, fp16.fault) == ("fp16", STEPS, "")
    assert fp16.diff_bps < report.trial.yardstick.diff_bps
    assert set(report.trial.curves["fp16"].scales) <= {2.0**k for k in range(17)}
    assert report.advice.verdicts["fp16"] in ("parity", f"unstable: {fp16.late_skipped:.0%} of the later steps")


def test_torchs_random_state_is_left_alone(data: Dataset) -> None:
    torch.manual_seed(11)
    want = torch.rand(2)
    torch.manual_seed(11)
    check_precisions(data, pipeline(), steps=STEPS)
    assert torch.equal(torch.rand(2), want)


def test_a_learning_rate_that_explodes_is_called_unstable(data: Dataset) -> None:
    tracker = Recorder()
    report = check_precisions(
        data, pipeline(lr=1e30, clip_norm=1e30, schedule="constant"), steps=STEPS, tracker=tracker
    )
    assert not report.passed
    assert report.advice.reason.startswith("unstable: fp32 itself")
    assert tracker.status == "FINISHED"
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["recommendation"] == "none"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_marks_the_run_killed(number: signal.Signals, code: int, data: Dataset) -> None:
    tracker, diary = Memory(), Diary(at_step=5, then=lambda: signal.raise_signal(number))
    with pytest.raises(TrainingStopped, match="amp-check stopped") as stopped:
        check_precisions(data, pipeline(), steps=STEPS, tracker=tracker, progress=diary)
    assert stopped.value.exit_code == code
    assert tracker.status == "KILLED"
    assert (len(diary.steps), diary.ended) == (5, 1)


def test_a_busy_machine_is_warned_of(
    data: Dataset, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def given(load: float) -> str:
        monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
        caplog.clear()
        check_precisions(data, pipeline(), steps=STEPS)
        return caplog.text

    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert "busy" not in given(2.0)
    assert "load 2.5 on 2 cores" in given(2.5)


def test_a_network_that_does_not_fit_the_data_is_refused_before_a_run_is_opened(data: Dataset) -> None:
    run = pipeline()
    run = run.model_copy(update={"model": run.model.model_copy(update={"flatten": 7})})
    tracker = Memory()
    with pytest.raises(ConfigError, match="flatten"):
        check_precisions(data, run, steps=STEPS, tracker=tracker)
    assert tracker.status is None


def test_peak_memory_on_a_cpu_comes_from_a_child_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)  # what lies about there is none of the child's business
    model = ModelSettings(hidden=256, layers=1, head=8192, dropout=0.0)
    kinds = precisions(TRAIN, torch.device("cpu"))
    weights = 4 * (4 * 256 * (50 + 256 + 2) + 257 * 8192 + 8193) / 2**20
    ballast = torch.ones(200, 2**20)  # 800 MiB that are this process's business
    found = peak_mib(
        model=model, train=TRAIN, precision=kinds["fp32"], shape=(2, 3, 50), last_only=False, device=torch.device("cpu")
    )
    del ballast
    assert found is not None
    assert 4 * weights < found < 4 * weights + 300  # weights, gradients and both moments of AdamW, and some of torch's


def test_peak_memory_that_cannot_be_measured_is_not_made_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    kind = precisions(TRAIN, torch.device("cpu"))["fp32"]
    device = torch.device("cpu")
    assert peak_mib(model=MODEL, train=TRAIN, precision=kind, shape=(1, 2, 3), last_only=True, device=device) is None
    assert "peak memory of fp32 is not known" in caplog.text
