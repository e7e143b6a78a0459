"""In: a simulated market, two folds. Out: a model for each, nested runs, every test bar predicted once."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from klinepred.audit import audit
from klinepred.audit.check import Certificate
from klinepred.bars.ingest import ingest
from klinepred.config import load_pipeline
from klinepred.errors import ModelError, TrainingError, UsageError
from klinepred.model.bundle import load_bundle, save_bundle
from klinepred.paths import Workspace
from klinepred.pipeline import build_dataset, train_folds, train_model, walk
from klinepred.pipeline.folds import (
    FoldModel,
    WalkForward,
    list_records,
    out_of_sample,
    read_record,
    record_path,
    save_record,
)
from klinepred.pipeline.ranges import predict_range, turns_of
from klinepred.schema import BAR
from klinepred.settings import DataSettings, Pipeline, SplitSettings
from tests.model.bundles import small_bundle

WORDS = [
    'data.source="simulate"',
    "data.simulate.symbols=5",
    "data.simulate.end=2026-04-10",
    "dataset.split.folds=2",
    'model.preset="lstm-small"',
    "model.hidden=8",
    "model.layers=1",
    "train.epochs=1",
    'train.device="cpu"',
]


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    space = Workspace(tmp_path_factory.mktemp("workspace"))
    table = {"source": "simulate", "simulate": {"symbols": 5, "end": "2026-04-10"}}
    ingest(DataSettings.model_validate(table), space)
    return space


@pytest.fixture
def run(space: Workspace, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setattr(
        audit, "audit_before_training", lambda *_, as_of: Certificate(())
    )  # the audit has tests of its own
    return load_pipeline("demo", overrides=WORDS, workspace=space)


def test_every_fold_has_its_model_its_dates_and_its_run_below_that_of_the_walk_forward(
    space: Workspace, run: Pipeline
) -> None:
    record = train_folds(run, space)
    assert record.finished
    assert list_records(space) == [record]
    assert [one.fold for one in record.models] == [1, 2]
    bundles = [load_bundle(space.trained / one.model) for one in record.models]
    assert [bundle.split.to_dict() for bundle in bundles] == [one.split for one in record.models]
    first, second = (bundle.split for bundle in bundles)
    assert second.calibration_end == first.test_end
    assert second.train_end > first.train_end
    assert second.test_end is None
    with closing(sqlite3.connect(space.mlruns / "mlflow.db")) as store:
        query = "select run_uuid from tags where key = 'mlflow.parentRunId' and value = ?"
        below = {row[0] for row in store.execute(query, (record.run_id,))}
        states = dict(store.execute("select run_uuid, status from runs").fetchall())
    assert below == {one.run_id for one in record.models}
    assert set(states) == {record.run_id, *below}
    assert set(states.values()) == {"FINISHED"}

    together = out_of_sample(record, space)
    single = build_dataset(
        run.model_copy(update={"dataset": run.dataset.model_copy(update={"split": _single()})}), space
    )
    mask_N = single.mask("test")
    want = single.rows.filter(pl.Series(mask_N, dtype=pl.Boolean)).select("symbol", "ts")
    assert together.select("symbol", "ts").equals(want)  # each test bar of the single split once, none missing
    ends = together.join(single.rows.select("symbol", "ts", "label_session"), on=["symbol", "ts"])
    assert first.test_end is not None
    assert ends.filter(pl.col("fold") == 1)["label_session"].max() == first.test_end
    assert ends.filter(pl.col("fold") == 2)["label_session"].min() > first.test_end  # type: ignore[operator]
    assert together["prediction"].is_finite().all()

    low, high = together["ts"].min(), together["ts"].max()
    span = (low, high + BAR)  # type: ignore[operator]
    turns = turns_of(record, space)
    asked = pl.concat([part.rows for part in predict_range(turns, space, run, span=span, slice_bars=2_000)])  # type: ignore[arg-type]
    both = together.join(asked.rename({"bar_ts": "ts"}), on=["symbol", "ts"], suffix="_asked")
    assert both.height == together.height
    assert both["model_asked"].equals(both["model"], check_names=False)
    given = both.filter(pl.col("expected_return_bps").is_not_null())  # a few it abstains from
    assert given.height > 0.9 * both.height
    apart = (given["expected_return_bps"] / (given["vol"].cast(pl.Float64) * 1e4) - given["prediction"]).abs().max()
    assert apart <= 1e-6  # type: ignore[operator]


def test_a_walk_forward_killed_between_two_folds_goes_on_with_the_next(space: Workspace, run: Pipeline) -> None:
    whole = next(iter(list_records(space)), None) or train_folds(run, space)
    save_record(space, replace(whole, models=whole.models[:1]))  # as it was when fold 1 had ended
    record = train_folds(run, space, resume=whole.models[0].run_id[:8])
    assert record.finished
    assert (record.name, record.run_id, record.models[0]) == (whole.name, whole.run_id, whole.models[0])
    assert record.models[1].split == whole.models[1].split
    save_record(space, whole)


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("dataset.split.folds=3", "dataset.split.folds"),  # whose second span would overlap the first of two
        ("dataset.horizon=2", "dataset.horizon"),
        ("model.hidden=9", "model.hidden"),
        ('data.symbols=["SIM001","SIM002","SIM003","SIM004"]', "data.symbols"),
    ],
)
def test_folds_that_are_left_are_not_trained_on_other_things_than_those_before(
    words: str, changed: str, space: Workspace, run: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = next(iter(list_records(space)), None) or train_folds(run, space)
    half = replace(whole, models=whole.models[:1])
    save_record(space, half)
    monkeypatch.setattr(walk, "build_folds", lambda *_, **__: pytest.fail("went on"))
    other = load_pipeline("demo", overrides=[*WORDS, words], workspace=space)
    with pytest.raises(TrainingError, match=whole.name) as caught:
        train_folds(other, space, resume=whole.models[0].run_id[:8])
    assert caught.value.got.partition(" = ")[0] == changed
    assert list_records(space) == [half]
    save_record(space, whole)


def test_folds_that_are_left_may_train_otherwise_with_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    space, run = Workspace(tmp_path), load_pipeline("demo", overrides=WORDS)
    save_bundle(replace(small_bundle(), pipeline=run.model_dump(mode="json")), space.trained / "one")
    split: dict[str, object] = {}
    record = WalkForward("w", "demo", "run", 2, (FoldModel(1, "one", "first", split, {}),))
    with caplog.at_level(logging.WARNING):
        walk.same_settings(run, space, record)
        assert caplog.text == ""
        walk.same_settings(load_pipeline("demo", overrides=[*WORDS, "train.lr=0.5"]), space, record)
    assert "train.lr = 0.5, before 0.001: folds that had ended keep theirs" in caplog.text
    with pytest.raises(TrainingError, match="walk-forward w") as caught:
        walk.same_settings(load_pipeline("demo", overrides=[*WORDS, "dataset.split.folds=3"]), space, record)
    assert (caught.value.expected, caught.value.got) == ("dataset.split.folds = 2", "dataset.split.folds = 3")


def _single() -> SplitSettings:
    return SplitSettings()


def test_one_model_is_not_trained_in_the_place_of_many(space: Workspace, run: Pipeline) -> None:
    with pytest.raises(UsageError, match="train_folds"):
        train_model(run, space)


def test_a_record_that_is_none_is_refused(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    path = record_path(space, "one")
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(ModelError, match="cannot be read"):
        read_record(path)
    assert list_records(space) == []
