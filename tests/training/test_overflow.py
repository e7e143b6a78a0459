"""In: tiny trainings whose numbers overflow. Out: who is named, what is saved, how the run ends or goes on."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from klinepred.dataset.make import Dataset
from klinepred.errors import TrainingError
from klinepred.settings import TrainSettings
from klinepred.training import epochs
from klinepred.training.checkpoint import load_checkpoint
from klinepred.training.overflow import examine
from klinepred.training.precision import resolve
from klinepred.training.signals import TrainingStopped
from klinepred.training.step import StepResult, take_step
from tests.training.tiny import BARS, SESSIONS, TRAIN, Diary, Memory, equal, fit, tiny_dataset, weights

FP16 = TRAIN.model_copy(update={"precision": "fp16", "overflow_steps": 4, "epochs": 2})
SYMBOL, SESSION, BAR, FEATURE = 3, 5, 7, 11
ROW = (SYMBOL * SESSIONS + SESSION) * BARS + BAR
TS = datetime(2026, 1, 5, 14, 30, tzinfo=UTC) + timedelta(days=SESSION, minutes=5 * BAR)


def poisoned(value: float) -> Dataset:
    """One feature of one train row has another value."""
    data = tiny_dataset()
    data.x_NF[ROW, FEATURE] = value
    return data


def beyond_fp16() -> Dataset:
    """A feature of 1e6 everywhere: float32 and bf16 hold that, fp16 ends at 65504."""
    data = tiny_dataset()
    data.x_NF[:, FEATURE] = 1e6
    return data


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_feature_that_is_not_finite_is_named_with_its_row_and_its_batch_is_saved(
    precision: str, value: float, tmp_path: Path
) -> None:
    data, memory, place = poisoned(value), Memory(), tmp_path / "run.pt"
    train = TRAIN.model_copy(update={"precision": precision, "on_overflow": "fallback"})  # which cannot help
    with pytest.raises(TrainingError) as caught:
        fit(data, train, tracker=memory, checkpoint=place)
    text = str(caught.value)
    name = data.scaler.names[FEATURE]
    assert f"S{SYMBOL} 2026-01-10T14:30Z to 2026-01-10T15:25Z; {name} is {value:g} at {TS:%Y-%m-%dT%H:%MZ}" in text
    assert text.count("\n") == 3
    assert "mend or leave out that feature" in caught.value.do
    assert memory.status == "FAILED"
    (saved,) = tmp_path.glob("run-overflow-step-*.parquet")
    assert str(saved) in text
    assert memory.folders["overflow"] == [saved.name.removeprefix("run-")]
    rows = pl.read_parquet(saved)
    assert rows.columns == ["symbol", "ts", "sequence", "label", "output", "finite", *data.scaler.names]
    assert 0 < rows.height <= 10 * BARS  # ten sessions at most
    assert rows.height == BARS * rows["sequence"].n_unique() == rows.select("symbol", "ts").n_unique()
    bad = rows.filter(~pl.col(name).is_finite())
    assert bad.select("symbol", "ts").rows() == [(f"S{SYMBOL}", TS)]
    assert not bad["finite"].any()
    table = load_checkpoint(place)
    assert all(bool(weight.isfinite().all()) for weight in table["network"].values())


def test_fp16_that_stays_infinite_stops_after_so_many_steps_and_says_that_float32_would_do(tmp_path: Path) -> None:
    memory, place = Memory(), tmp_path / "run.pt"
    data = beyond_fp16()
    with pytest.raises(TrainingError) as caught:
        fit(data, FP16, tracker=memory, checkpoint=place)
    assert "in 4 steps in a row, up to step 4, in fp16 at a loss scale of 8192" in caught.value.got
    assert f"{data.scaler.names[FEATURE]} is the most extreme feature: 1e+06 at" in caught.value.got
    assert "--precision bf16" in caught.value.do
    assert memory.status == "FAILED"
    assert memory.series("amp/skipped_steps") == [1.0, 2.0, 3.0, 4.0]
    table = load_checkpoint(place)
    assert (table["counters"]["tried"], table["counters"]["done"], table["counters"]["in_a_row"]) == (4, 0, 0)
    after = fit(data, TRAIN.model_copy(update={"precision": "bf16", "epochs": 2}), resume=place)
    assert after.provenance["steps"] == 2 * 8 - 4


def test_weights_that_have_grown_too_far_are_told_from_a_precision_that_is_too_small() -> None:
    memory = Memory()
    train = TRAIN.model_copy(update={"lr": 1e30, "schedule": "constant", "on_overflow": "fallback"})
    with pytest.raises(TrainingError, match=r"lower --set train\.lr") as caught:
        fit(tiny_dataset(), train, tracker=memory)
    assert "in 1 step, up to step 2, in fp32;" in caught.value.got
    assert memory.status == "FAILED"


def test_fallback_goes_on_in_bf16_from_the_last_good_weights_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory, place = Memory(), tmp_path / "run.pt"
    train = FP16.model_copy(update={"on_overflow": "fallback"})
    with caplog.at_level(logging.WARNING):
        bundle = fit(beyond_fp16(), train, tracker=memory, checkpoint=place)
    assert memory.status == "FINISHED"
    assert "falling back from fp16 to bf16" in caplog.text
    assert memory.tags["precision"] == "bf16"
    assert memory.tags["precision_fallback"] == "fp16 -> bf16 at step 4"
    assert bundle.provenance["precision"] == "bf16"
    assert bundle.provenance["precision_fallback"] == "fp16 -> bf16 at step 4"
    assert memory.series("amp/loss_scale")[:6] == [65536.0, 32768.0, 16384.0, 8192.0, 1.0, 1.0]
    assert memory.series("amp/skipped_steps")[-1] == 4.0
    assert torch.backends.mkldnn.enabled
    assert (tmp_path / "run-overflow-step-4.parquet").is_file()


@pytest.mark.parametrize("step", [2, 4, 5, 11])
def test_a_run_that_fell_back_is_resumed_in_the_precision_it_fell_to(
    step: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train = FP16.model_copy(update={"on_overflow": "fallback"})
    data, place = beyond_fp16(), tmp_path / "run.pt"
    want = weights(fit(data, train))
    stopper = Diary(at_step=step, then=lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(TrainingStopped):
        fit(data, train, progress=stopper, checkpoint=place)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert equal(weights(fit(data, train, resume=place)), want)
    assert ("it goes on in bf16" in caplog.text) == (step >= 4)
    if step >= 4:  # unless another precision is asked for
        with caplog.at_level(logging.WARNING):
            other = fit(data, train.model_copy(update={"precision": "fp32"}), resume=place)
        assert other.provenance["precision"] == "fp32"


def test_bf16_that_overflows_falls_back_to_fp32_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    true: Callable[..., StepResult] = take_step

    def failing(*args: Any, **options: Any) -> StepResult:
        result = true(*args, **options)
        return replace(result, loss=float("nan"), skipped=True) if options["precision"].name == "bf16" else result

    monkeypatch.setattr(epochs, "take_step", failing)
    memory = Memory()
    train = TRAIN.model_copy(update={"precision": "bf16", "on_overflow": "fallback", "epochs": 1})
    bundle = fit(tiny_dataset(), train, tracker=memory)
    assert bundle.provenance["precision_fallback"] == "bf16 -> fp32 at step 1"
    assert (bundle.provenance["precision"], bundle.provenance["skipped_steps"]) == ("fp32", 1)


def test_a_single_overflow_is_the_loss_scales_business() -> None:
    memory = Memory()
    fit(tiny_dataset(), FP16.model_copy(update={"init_scale": 2.0**26, "overflow_steps": 20}), tracker=memory)
    assert memory.status == "FINISHED"
    assert 4.0 < memory.series("amp/skipped_steps")[-1] < 20.0
    assert "overflow" not in memory.folders


def test_examining_leaves_weights_mode_and_random_numbers_as_they_were() -> None:
    from klinepred.model.lstm import build_network
    from klinepred.training.rows import TrainRows
    from tests.training.tiny import MODEL

    data, device = tiny_dataset(), torch.device("cpu")
    network = build_network(MODEL, inputs=data.x_NF.shape[1])
    network.train()
    batch = TrainRows(data, device=device, size=10, seed=7).batch_rows(0, 7)  # the last: two sequences
    torch.manual_seed(4)
    want = torch.rand(2)
    torch.manual_seed(4)
    found = examine(network, data, batch, precision=resolve(TrainSettings(), device), device=device)
    assert torch.equal(torch.rand(2), want)
    assert network.training
    assert found.rows.height == 2 * BARS
    x_RF = data.x_NF[np.unique(batch.rows_BT)]
    assert abs(found.value) == np.abs(x_RF).max()  # nothing is infinite: the most extreme feature of all
    assert found.cause == "network"
