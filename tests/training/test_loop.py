"""In: tiny trainings. Out: what the loop promises: it learns, repeats, resumes and stops."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from klinepred.dataset.make import Dataset
from klinepred.errors import TrainingError
from klinepred.model.forward import forward_rows
from klinepred.settings import TrainSettings
from klinepred.training import epochs
from klinepred.training.checkpoint import load_checkpoint
from klinepred.training.schedule import learning_rate
from klinepred.training.signals import TrainingStopped, TrainingTerminated
from klinepred.training.validation import Validation
from tests.training.tiny import TRAIN, Diary, Memory, equal, fit, tiny_dataset, tiny_pipeline, weights

CPU = torch.device("cpu")
STEPS = 8  # 72 train sequences in batches of 10


@pytest.fixture(scope="module")
def data() -> Dataset:
    return tiny_dataset()


@pytest.fixture(scope="module")
def uninterrupted(data: Dataset) -> tuple[dict[str, torch.Tensor], Memory]:
    memory = Memory()
    return weights(fit(data, tracker=memory)), memory


def graded(loss: float) -> Validation:
    return Validation(loss, loss, 0.0, 0.0, 0.0, 1)


def test_a_planted_signal_is_learned(data: Dataset) -> None:
    memory = Memory()
    bundle = fit(data, TRAIN.model_copy(update={"epochs": 12, "lr": 2e-2, "ema": 0.0}), tracker=memory)
    losses = memory.series("train_loss")
    assert losses[-1] < 0.97 * losses[0]
    assert max(memory.series("val_skill")) > 0.05
    pred_N = forward_rows(bundle.network, data.x_NF, data.part("test"))
    mask_N = data.mask("test")
    assert np.corrcoef(pred_N[mask_N], data.x_NF[mask_N, 0])[0, 1] > 0.6


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(
    data: Dataset, uninterrupted: tuple[dict[str, torch.Tensor], Memory]
) -> None:
    want, memory = uninterrupted
    again = Memory()
    assert equal(weights(fit(data, tracker=again)), want)
    assert again.series("step/loss") == memory.series("step/loss")
    assert not equal(weights(fit(data, TRAIN.model_copy(update={"seed": 8}))), want)


def test_the_callers_random_state_is_untouched(data: Dataset) -> None:
    torch.manual_seed(3)
    want = torch.rand(4)
    torch.manual_seed(3)
    fit(data, TRAIN.model_copy(update={"epochs": 1}))
    assert torch.equal(torch.rand(4), want)


@pytest.mark.parametrize("step", [1, STEPS - 1, STEPS, STEPS + 3, 3 * STEPS])
def test_resume_equals_uninterrupted(
    step: int, data: Dataset, uninterrupted: tuple[dict[str, torch.Tensor], Memory], tmp_path: Path
) -> None:
    want, memory = uninterrupted
    place = tmp_path / "run.pt"
    first, second = Memory(), Memory()
    stopper = Diary(at_step=step, then=lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(TrainingStopped, match="SIGINT") as stopped:
        fit(data, tracker=first, progress=stopper, checkpoint=place)
    assert stopped.value.exit_code == 130
    assert str(place) in stopped.value.do
    assert (first.status, stopper.ended) == ("KILLED", 1)
    assert len(stopper.steps) == step
    diary = Diary()
    assert equal(weights(fit(data, tracker=second, progress=diary, resume=place)), want)
    assert diary.begun == (3 * STEPS, step)
    assert second.status == "FINISHED"
    for name in ("step/loss", "train_loss", "val_loss", "step/lr", "gradient/norm"):
        assert first.series(name) + second.series(name) == memory.series(name)


def test_resume_equals_uninterrupted_with_a_scaler_that_overflows(data: Dataset, tmp_path: Path) -> None:
    train = TRAIN.model_copy(update={"precision": "fp16", "init_scale": 2.0**24, "growth_interval": 3, "epochs": 2})
    whole = Memory()
    want = weights(fit(data, train, tracker=whole))
    assert whole.series("amp/skipped_steps")[-1] > 2.0
    for step in (2, 9):
        parts = Memory()
        place = tmp_path / f"{step}.pt"
        stopper = Diary(at_step=step, then=lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(TrainingTerminated) as stopped:
            fit(data, train, progress=stopper, tracker=parts, checkpoint=place)
        assert stopped.value.exit_code == 143
        assert equal(weights(fit(data, train, tracker=parts, resume=place)), want)
        assert parts.series("amp/loss_scale") == whole.series("amp/loss_scale")


def test_skipped_steps_advance_neither_the_schedule_nor_the_average(data: Dataset) -> None:
    train = TRAIN.model_copy(update={"precision": "fp16", "init_scale": 2.0**28, "epochs": 2})
    memory = Memory()
    fit(data, train, tracker=memory)
    skipped = memory.series("amp/skipped_steps")
    assert skipped[:2] == [1.0, 2.0]
    rates, scales = memory.series("step/lr"), memory.series("amp/loss_scale")
    for tried, (rate, late) in enumerate(zip(rates, [0.0, *skipped], strict=False)):
        assert rate == learning_rate(tried - int(late), planned=2 * STEPS, train=train)
    assert scales[:3] == [2.0**28, 2.0**27, 2.0**26]
    assert memory.series("skipped_steps")[-1] == skipped[-1]


def test_more_epochs_may_be_added_to_a_finished_run(data: Dataset, tmp_path: Path) -> None:
    whole = TRAIN.model_copy(update={"epochs": 4, "schedule": "constant"})
    half = whole.model_copy(update={"epochs": 2})
    one, two = Memory(), Memory()
    want = weights(fit(data, whole, tracker=one))
    fit(data, half, tracker=two, checkpoint=tmp_path / "run.pt")
    assert equal(weights(fit(data, whole, tracker=two, resume=tmp_path / "run.pt")), want)
    assert two.series("train_loss") == one.series("train_loss")


@pytest.mark.parametrize(("before", "after"), [("fp16", "fp32"), ("fp32", "fp16")])
def test_a_checkpoint_crosses_precisions_with_a_remark(
    before: str, after: str, data: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "run.pt"
    fit(data, TRAIN.model_copy(update={"precision": before, "epochs": 1}), checkpoint=place)
    assert bool(load_checkpoint(place)["scaler"]) == (before == "fp16")
    with caplog.at_level(logging.WARNING):
        fit(data, TRAIN.model_copy(update={"precision": after, "epochs": 2}), resume=place)
    assert "loss scale" in caplog.text
    assert f"train.precision = {after}, before {before}" in caplog.text


def test_a_checkpoint_from_a_cuda_run_resumes_on_the_cpu(
    data: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "run.pt"
    fit(data, TRAIN.model_copy(update={"epochs": 1}), checkpoint=place)
    table = torch.load(place)
    scaler = torch.amp.GradScaler("cpu")
    torch.save({**table, "scaler": scaler.state_dict(), "rng_cuda": torch.get_rng_state(), "precision": "fp16"}, place)
    with caplog.at_level(logging.WARNING):
        fit(data, TRAIN.model_copy(update={"epochs": 2}), resume=place)
    assert "another kind of device" in caplog.text


def test_nan_is_never_the_best_epoch(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([float("nan"), 2.0, 1.0, float("nan"), float("-inf") * 0, 1.5])
    monkeypatch.setattr(epochs, "validate", lambda *_, **__: graded(next(losses)))
    diary = Diary()
    bundle = fit(data, TRAIN.model_copy(update={"epochs": 6}), progress=diary)
    assert [news.best for news in diary.epochs] == [False, True, True, False, False, False]
    assert (bundle.provenance["best_epoch"], bundle.provenance["val_loss"]) == (3, 1.0)


def test_a_run_without_a_finite_validation_loss_fails(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "validate", lambda *_, **__: graded(float("nan")))
    memory = Memory()
    with pytest.raises(TrainingError, match="validation loss"):
        fit(data, TRAIN.model_copy(update={"epochs": 2}), tracker=memory)
    assert memory.status == "FAILED"


def test_patience_counts_epochs_since_the_best(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([3.0, 2.0, 2.5, 2.0, 1.0, 0.5])
    monkeypatch.setattr(epochs, "validate", lambda *_, **__: graded(next(losses)))
    bundle = fit(data, TRAIN.model_copy(update={"epochs": 6, "patience": 2}))
    assert (bundle.provenance["epochs"], bundle.provenance["best_epoch"]) == (4, 2)


def test_the_bundle_has_the_weights_of_the_best_epoch(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, torch.Tensor]] = []
    losses = iter([1.0, 0.5, 0.8])

    def watching(network: nn.Module, *_: Any, **__: Any) -> Validation:
        seen.append({name: weight.clone() for name, weight in network.state_dict().items()})
        return graded(next(losses))

    monkeypatch.setattr(epochs, "validate", watching)
    got = weights(fit(data))
    assert equal(got, seen[1])
    assert not equal(got, seen[2])


def test_the_bundle_knows_where_it_comes_from(data: Dataset) -> None:
    run = tiny_pipeline()
    memory = Memory()
    bundle = fit(data, tracker=memory, pipeline=run)
    assert bundle.pipeline == run.model_dump(mode="json")
    assert bundle.provenance["precision"] == "fp32"
    assert bundle.provenance["leak_certificate"] == "not audited"
    assert bundle.feature_names == tuple(data.features.names)
    assert not bundle.network.training
    golden = ["golden.safetensors", "golden_bars.safetensors"]
    assert memory.folders["model"] == ["bundle.json", *golden, "weights.safetensors"]
    assert bundle.calibration.kinds[0] is not None
    assert bundle.calibration.kinds[0].rows in {6 * 2 * 11, 6 * 5 * 11}  # calibration part, or with validation


def test_amp_on_the_cpu_trains_in_bf16(data: Dataset) -> None:
    memory = Memory()
    bundle = fit(data, TRAIN.model_copy(update={"amp": True, "epochs": 1}), tracker=memory)
    assert bundle.provenance["precision"] == "bf16"
    assert all(weight.dtype == torch.float32 for weight in weights(bundle).values())
    assert set(memory.series("amp/loss_scale")) == {1.0}


def test_huber_and_value_clipping_train(data: Dataset) -> None:
    memory = Memory()
    train = TrainSettings.model_validate({**TRAIN.model_dump(), "loss": "huber", "clip": "value", "clip_value": 1e-3})
    fit(data, train, tracker=memory)
    assert memory.series("gradient/clipped_share")[-1] > 0.5
    assert max(memory.series("gradient/norm_clipped")) <= 1e-3 * 40.0
    losses = memory.series("train_loss")
    assert losses[-1] < losses[0]


def test_an_error_in_the_middle_leaves_the_run_failed(data: Dataset) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    memory = Memory()
    diary = Diary(at_step=3, then=broken)
    with pytest.raises(ZeroDivisionError):
        fit(data, tracker=memory, progress=diary)
    assert (memory.status, diary.ended) == ("FAILED", 1)


def test_handlers_of_signals_come_back(data: Dataset) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    fit(data, TRAIN.model_copy(update={"epochs": 1}))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_second_signal_stops_at_once(data: Dataset) -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    memory = Memory()
    with pytest.raises(KeyboardInterrupt):
        fit(data, tracker=memory, progress=Diary(at_step=2, then=twice))
    assert memory.status == "KILLED"
