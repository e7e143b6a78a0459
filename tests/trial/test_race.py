"""In: lanes that only write down when they were called. Out: who goes when, on which batch, and how speeds compare."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import cast

import pytest
import torch

from klinepred.settings import TrainSettings
from klinepred.training.progress import NoProgress
from klinepred.training.rows import TrainRows
from klinepred.trial.lane import Lane, Record
from klinepred.trial.probe import Batch
from klinepred.trial.race import Clock, batches, last_quarter, late_skipped, precisions, race, speedup, step_ms
from tests.training.tiny import tiny_dataset

CPU = torch.device("cpu")


@dataclass
class Diary:
    """A lane that remembers."""

    record: Record
    log: list[tuple[str, int, float]] = field(default_factory=list)

    def step(self, batch: Batch, *, seed: int) -> None:
        self.log.append((self.record.name, seed, float(batch[0].sum())))


def test_every_lane_takes_every_batch_and_the_order_turns() -> None:
    rows = TrainRows(tiny_dataset(), device=CPU, size=30, seed=1)  # 72 sequences: 3 batches an epoch
    log: list[tuple[str, int, float]] = []
    lanes = [cast("Lane", Diary(Record(name), log)) for name in "abc"]
    places: list[str] = []
    race(lanes, rows, steps=4, seed=0, clock=Clock(NoProgress(), places.append, steps=12))
    assert "".join(name for name, _, _ in log) == "abcbcacababc"
    assert len(places) == 12
    sums = [float(batch[0].sum()) for batch, _ in batches(rows, steps=4)]
    assert [total for _, _, total in log] == [total for total in sums for _ in "abc"]
    assert [seed for _, seed, _ in log] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_batches_go_on_into_the_next_epoch_and_another_start_is_another_order() -> None:
    rows = TrainRows(tiny_dataset(), device=CPU, size=30, seed=1)
    first = [float(batch[0].sum()) for batch, _ in batches(rows, steps=5)]
    whole = [float(batch[0].sum()) for epoch in (0, 1) for batch, _ in rows.epoch(epoch)]
    assert first == whole[:5]
    assert [float(batch[0].sum()) for batch, _ in batches(rows, steps=3, first=9)] != first[:3]


def test_speed_is_the_median_of_pairs_after_warm_up_with_its_interval() -> None:
    base = Record("fp32", seconds=[99.0, 99.0, 99.0, *(2.0 for _ in range(9))])
    other = Record("bf16", seconds=[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 4.0, 8.0, 0.25])
    # ratios 2 2 2 2 2 4 0.5 0.25 8: sorted 0.25 0.5 2 2 2 2 2 4 8; of nine the sign test leaves one out on each side
    assert speedup(base, other) == (2.0, 0.5, 4.0)
    assert speedup(base, base) == (1.0, 1.0, 1.0)
    assert step_ms(other) == 1000.0


def test_a_lane_that_stopped_early_has_no_speed() -> None:
    whole, short = Record("fp32", seconds=[1.0] * 9), Record("fp16", seconds=[1.0] * 5)
    assert all(math.isnan(value) for value in speedup(whole, short))
    assert math.isnan(step_ms(Record("fp16", seconds=[1.0, 1.0, 1.0])))


def test_late_skips_and_late_losses_are_of_the_last_steps() -> None:
    assert late_skipped(Record("fp16", skipped=[True, True, True, False, True, False, False, False])) == 0.25
    assert late_skipped(Record("fp16")) == 0.0
    assert last_quarter([9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 1.0, 3.0]) == 2.0
    assert math.isnan(last_quarter([]))


@pytest.mark.parametrize(("native", "names"), [(True, ["fp32", "tf32", "fp16", "bf16"]), (False, ["fp32", "fp16"])])
def test_bf16_and_tf32_are_tried_only_where_a_card_has_them(
    native: bool, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "some card")
    monkeypatch.setattr("klinepred.training.precision.native_bf16", lambda _: native)
    monkeypatch.setattr("klinepred.trial.race.native_bf16", lambda _: native)
    found = precisions(TrainSettings(), torch.device("cuda", 0))
    assert list(found) == names
    assert found["fp16"].scaled
    assert [kind.tf32 for kind in found.values()] == [name == "tf32" for name in names]


def test_on_a_cpu_all_three_can_be_tried() -> None:
    found = precisions(TrainSettings(), CPU)
    assert [(name, kind.scaled, kind.native_lstm) for name, kind in found.items()] == [
        ("fp32", False, False),
        ("fp16", True, True),
        ("bf16", False, False),
    ]
