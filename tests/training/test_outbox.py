"""In: batches, writers that are slow, that fail. Out: every batch written in order, every fault told, nothing lost."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from klinepred.errors import TrainingError
from klinepred.paths import Workspace
from klinepred.training.outbox import WAITING, Outbox
from klinepred.training.tracker import Metric
from klinepred.training.tracking import MlflowTracker
from tests.training.tiny import TRAIN, fit, tiny_dataset, tiny_pipeline


def batch(number: int) -> list[Metric]:
    return [Metric("loss", float(number), number, 0)]


def test_batches_are_written_in_order_by_one_other_thread_while_the_caller_goes_on() -> None:
    gate, written, threads = threading.Event(), list[int](), set[int]()

    def write(metrics: Sequence[Metric]) -> None:
        gate.wait(30)
        threads.add(threading.get_ident())
        written.append(metrics[0].step)

    outbox = Outbox(write)
    for number in range(WAITING):
        outbox.put(batch(number))  # none of them is waited for
    assert written == []
    gate.set()
    outbox.flush()
    assert written == [*range(WAITING)]
    for number in range(WAITING, 3 * WAITING):  # more than may wait: the caller is held back, nothing is dropped
        outbox.put(batch(number))
    outbox.close()
    assert written == [*range(3 * WAITING)]
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    outbox.put(batch(-1))
    outbox.close()
    assert written[-1] == -1


def test_a_batch_that_cannot_be_written_is_told_of_at_every_later_turn_and_nothing_follows_it() -> None:
    written: list[int] = []

    def write(metrics: Sequence[Metric]) -> None:
        if metrics[0].step == 2:
            raise TrainingError("the disk", expected="room", got="none", do="free some")
        written.append(metrics[0].step)

    outbox = Outbox(write)
    outbox.put(batch(1))
    outbox.flush()
    outbox.put(batch(2))
    with pytest.raises(TrainingError, match="the disk"):
        outbox.flush()
    with pytest.raises(TrainingError, match="the disk"):
        outbox.put(batch(3))
    with pytest.raises(TrainingError, match="the disk"):
        outbox.close()
    assert written == [1]


def test_a_batch_taken_over_is_not_changed_by_what_the_caller_does_with_it_later() -> None:
    seen: list[int] = []
    outbox = Outbox(lambda metrics: seen.append(len(metrics)))
    mine = batch(1)
    outbox.put(mine)
    mine.clear()
    outbox.close()
    assert seen == [1]


def test_numbers_that_cannot_be_recorded_end_the_run_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = MlflowTracker(Workspace(tmp_path), tiny_pipeline())

    def broken(_: Sequence[Metric]) -> None:
        raise TrainingError("the store", expected="room", got="none", do="free some")

    monkeypatch.setattr(tracker._outbox, "_write", broken)
    with pytest.raises(TrainingError, match="the store"):
        fit(tiny_dataset(symbols=3), TRAIN.model_copy(update={"epochs": 2}), tracker=tracker)
    assert tracker.client.get_run(tracker.run_id).info.status == "FAILED"
    assert threading.active_count() < 50
    assert not [thread for thread in threading.enumerate() if thread.name == "klinepred-metrics"]


def test_no_checkpoint_is_written_before_the_numbers_up_to_it_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = MlflowTracker(Workspace(tmp_path), tiny_pipeline())
    recorded: list[int] = []
    saved: list[tuple[int, int]] = []
    write, save = tracker.write, torch.save

    def slow(metrics: Sequence[Metric]) -> None:
        threading.Event().wait(0.05)
        write(metrics)
        recorded.extend(metric.step for metric in metrics if metric.name == "train_loss")

    def watched(table: Any, out: Any) -> None:
        saved.append((table["counters"]["epoch"], len(recorded)))
        save(table, out)

    monkeypatch.setattr(tracker._outbox, "_write", slow)
    monkeypatch.setattr(torch, "save", watched)
    fit(tiny_dataset(symbols=3), TRAIN.model_copy(update={"epochs": 3}), tracker=tracker)
    assert [pair for pair in saved if pair[0] > 0] == [(1, 1), (2, 2), (3, 3)]
