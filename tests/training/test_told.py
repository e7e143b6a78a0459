"""In: a tiny training, a clock that ticks by itself. Out: what the tracker is told, in which order, of which step."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from klinepred.model.bundle import ModelBundle
from klinepred.settings import Pipeline
from klinepred.training import epochs, loop
from klinepred.training.checkpoint import save_checkpoint
from klinepred.training.pace import Pace
from klinepred.training.schedule import learning_rate
from tests.training.tiny import TRAIN, Diary, Memory, fit, tiny_dataset, tiny_pipeline

STEPS = 8


class Told(Memory):
    """Remembers also how a run is begun, and the order of what comes."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: dict[str, Any] = {}
        self.order: list[str] = []

    def start(
        self,
        pipeline: Pipeline | None,
        *,
        params: Mapping[str, str | float],
        tags: Mapping[str, str],
        resume: str | None,
    ) -> dict[str, Any]:
        self.begun = {"pipeline": pipeline, "params": dict(params), "tags": dict(tags), "resume": resume}
        return {"run_id": "r1"}

    def settle(self) -> None:
        self.order.append("settle")

    def end(self, status: Any) -> None:
        super().end(status)
        self.order.append(f"end {status}")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Told, Diary, ModelBundle]:
    """Two epochs, by a clock that is 1 s further whenever it is asked."""
    memory, diary, ticks = Told(), Diary(), itertools.count(10_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "perf_counter", lambda: float(next(ticks)))
        patch.setattr(epochs, "Pace", lambda: Pace(clock=lambda: float(next(ticks))))
        real = save_checkpoint

        def saved(place: Path, table: dict[str, Any], **about: Any) -> None:
            memory.order.append("save")
            real(place, table, **about)

        patch.setattr(loop, "save_checkpoint", saved)
        bundle = fit(
            tiny_dataset(),
            TRAIN.model_copy(update={"epochs": 2}),
            tracker=memory,
            progress=diary,
            pipeline=tiny_pipeline(),
            checkpoint=tmp_path_factory.mktemp("told") / "run.pt",
            shelve=lambda _: memory.order.append("shelve"),
        )
    return memory, diary, bundle


def test_a_run_is_begun_with_its_sizes_its_precision_and_the_border_of_its_test_part(
    told: tuple[Told, Diary, ModelBundle],
) -> None:
    memory, _, bundle = told
    begun = memory.begun
    assert begun["resume"] is None
    assert begun["pipeline"].train.epochs == 2  # the settings it is trained with, not those of the pipeline
    count = sum(weight.numel() for weight in bundle.network.parameters())
    for name, value in {"parameters": count, "sequences": 72, "steps_per_epoch": STEPS}.items():
        assert begun["params"][name] == value
    assert "processes" not in begun["params"]
    want = {"precision": "fp32", "test_after": "2026-01-21", "leak_certificate": "not audited"}
    assert want.items() <= begun["tags"].items()
    assert {"device", "precision_reason", "cpu_path"} <= begun["tags"].keys()
    assert bundle.provenance["run_id"] == "r1"


def test_a_checkpoint_never_comes_before_the_record_and_the_run_is_closed_last(
    told: tuple[Told, Diary, ModelBundle],
) -> None:
    order = told[0].order
    assert order[-2:] == ["shelve", "end FINISHED"]
    saves = [place for place, what in enumerate(order) if what == "save"]
    assert len(saves) == 2  # after each epoch
    assert all(order[place - 1] == "settle" for place in saves)


def test_an_epoch_is_told_with_its_rate_its_speed_and_its_shares_of_the_time(
    told: tuple[Told, Diary, ModelBundle],
) -> None:
    memory, diary, _ = told
    train = TRAIN.model_copy(update={"epochs": 2})
    assert memory.series("lr") == [learning_rate(done, planned=2 * STEPS, train=train) for done in (STEPS, 2 * STEPS)]
    for rate, whole, waited, kept in zip(
        *(memory.series(name) for name in ("labelled_bars_per_s", "epoch_s", "loader_share", "recorder_share")),
        strict=True,
    ):
        seconds = 6 * 12 * 11 / rate  # labelled bars of an epoch; each look at the clock is a second
        assert seconds == pytest.approx(round(seconds), rel=1e-9)
        assert 3 * STEPS < seconds < whole < 2 * seconds
        assert waited == pytest.approx(STEPS / seconds, rel=1e-9)  # asked when a wait begins and when it ends
        assert kept == pytest.approx(2 * STEPS / seconds, rel=1e-9)  # watch and record of each step
    assert memory.series("best_val_loss") == [min(memory.series("val_loss")[: n + 1]) for n in range(2)]
    assert [metric.step for metric in memory.metrics if metric.name == "val_loss"] == [1, 2]
    for name in ("val_skill", "val_mse", "val_rank_ic", "val_loss_unclipped", "skipped_steps"):
        assert all(math.isfinite(value) for value in memory.series(name))
    assert [news.loss for news in diary.steps] == memory.series("step/loss")
    assert [metric.step for metric in memory.metrics if metric.name == "step/loss"] == list(range(1, 2 * STEPS + 1))
    sums = memory.series("step/loss")
    assert min(sums[:STEPS]) < memory.series("train_loss")[0] < max(sums[:STEPS])


def test_every_log_every_th_step_is_recorded_and_the_first(tmp_path: Path) -> None:
    memory = Told()
    fit(tiny_dataset(), TRAIN.model_copy(update={"epochs": 1, "log_every": 3}), tracker=memory)
    assert [metric.step for metric in memory.metrics if metric.name == "step/loss"] == [1, 3, 6]
    assert "settle" not in memory.order  # no place, no checkpoint
    assert memory.begun["pipeline"].name == "unnamed"
