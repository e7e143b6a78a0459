"""In: a store, models, ranges of time. Out: the same rows in slices as in one go, each by its model, none foreseen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import polars as pl
import pytest

import klinepred as kp
from klinepred.bars.ingest import ingest
from klinepred.crowd import batches_of, forecast_many
from klinepred.dataset.split import Split
from klinepred.model.bundle import ModelBundle, save_bundle
from klinepred.pipeline.folds import FoldModel, WalkForward, save_record
from klinepred.pipeline.judge import predict_bars
from klinepred.pipeline.ranges import Turn, predict_range, turns_of
from klinepred.prediction import forecast
from klinepred.schema import Bars
from tests.asked import SPLIT, asked_bundle, walked
from tests.bars.made import NOW, from_files, utc
from tests.conftest import Typed

CLOCKS = dict.fromkeys(("AAA", "BBB", "CCC", "DDD", "EEE"), "XNYS")
SPAN = (utc("2026-05-22T15:00"), utc("2026-06-09T17:00"))
KEY = ["symbol", "bar_ts"]
FORECASTS = ("expected_return_bps", "p_up", "lo80_bps", "hi80_bps")


def stored(root: Path, bars: pl.DataFrame) -> kp.Workspace:
    root.mkdir()
    bars.drop("calendar").write_parquet(root / "bars.parquet")
    space = kp.Workspace(root / "w")
    ingest(from_files(root / "bars.parquet"), space, now=NOW)
    return space


@pytest.fixture(scope="module")
def bars() -> pl.DataFrame:
    """EEE stops for half a week, DDD begins late, one bar of CCC is missing."""
    gone = pl.col("ts").is_between(utc("2026-05-26"), utc("2026-05-29"))
    whole = walked(CLOCKS, days=55).collect()
    return whole.filter(
        ~((pl.col("symbol") == "EEE") & gone)
        & ~((pl.col("symbol") == "DDD") & (pl.col("ts") < utc("2026-05-04")))
        & ~((pl.col("symbol") == "CCC") & (pl.col("ts") == utc("2026-06-02T15:00")))
    )


@pytest.fixture(scope="module")
def space(bars: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> kp.Workspace:
    return stored(tmp_path_factory.mktemp("ranges") / "a", bars)


@pytest.fixture(scope="module")
def run(space: kp.Workspace) -> kp.Pipeline:
    return kp.load_pipeline("demo", workspace=space)


@pytest.fixture(scope="module")
def bundle() -> ModelBundle:
    return asked_bundle(CLOCKS, target="relative")


def joined(turns: Sequence[Turn], space: kp.Workspace, run: kp.Pipeline, *, slice_bars: int) -> pl.DataFrame:
    parts = list(predict_range(turns, space, run, span=SPAN, now=utc("2026-06-30"), slice_bars=slice_bars))
    return pl.concat([part.rows for part in parts]).sort(KEY)


def check_alike(got: pl.DataFrame, want: pl.DataFrame) -> None:
    """The same rows; forecasts may differ in their last digits."""
    assert got.select(KEY).equals(want.select(KEY))
    assert got.drop(FORECASTS).equals(want.drop(FORECASTS))
    for name in FORECASTS:
        apart = (got[name] - want[name]).abs().max()
        assert apart <= 1e-6 * want[name].abs().max(), name  # type: ignore[operator]


@pytest.mark.parametrize("slice_bars", [400, 1_600, 1_000_000])
def test_slices_change_no_number(space: kp.Workspace, run: kp.Pipeline, bundle: ModelBundle, slice_bars: int) -> None:
    whole = forecast(bundle, kp.scan_bars(space), span=SPAN, now=utc("2026-06-30")).rows
    sliced = joined([Turn(bundle)], space, run, slice_bars=slice_bars)
    assert whole.height > 3_000
    check_alike(sliced, whole)


def test_batches_of_symbols_change_no_number(
    space: kp.Workspace, run: kp.Pipeline, bundle: ModelBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three symbols are none of the model's universe; two are taken at a time."""
    small = replace(bundle, universe=("BBB", "CCC"))
    now, wanted = utc("2026-06-09T16:00"), (*CLOCKS, "ZZZ")
    whole = predict_bars(small, space, run, symbols=wanted, now=now)
    sliced = joined([Turn(small)], space, run, slice_bars=1_600)
    monkeypatch.setattr("klinepred.crowd.BATCH", 2)
    assert batches_of(wanted, small) == [["AAA", "BBB"], ["CCC", "DDD"], ["EEE", "ZZZ"]]
    parts = predict_bars(small, space, run, symbols=wanted, now=now)
    check_alike(parts.rows, whole.rows)
    assert parts.prices.select("symbol", "last_close").equals(whole.prices.select("symbol", "last_close"))
    assert parts.failures == whole.failures
    assert whole.rows["symbol"].to_list() == list(CLOCKS)
    check_alike(joined([Turn(small)], space, run, slice_bars=1_600), sliced)


def test_a_changed_future_leaves_the_rows_before_it_as_they_were(
    space: kp.Workspace, bars: pl.DataFrame, run: kp.Pipeline, bundle: ModelBundle, tmp_path: Path
) -> None:
    """Inside the range, and amid a slice."""
    cut = utc("2026-06-03T15:00")
    wild = bars.with_columns(
        pl.when(pl.col("ts") >= cut).then(pl.col(name) * factor).otherwise(pl.col(name)).alias(name)
        for name, factor in (("open", 1.3), ("high", 1.6), ("low", 1.1), ("close", 1.4), ("volume", 9.0))
    ).filter((pl.col("ts") < cut) | (pl.col("symbol") != "BBB"))
    other = stored(tmp_path / "b", wild)
    before, after = (
        joined([Turn(bundle)], place, run, slice_bars=1_600).filter(pl.col("bar_ts") < cut) for place in (space, other)
    )
    assert before.height > 2_000
    assert before.equals(after)


def walk_forward(space: kp.Workspace, bundle: ModelBundle) -> WalkForward:
    first = replace(SPLIT, test_end=date(2026, 5, 29), folds=2)
    second = Split(date(2026, 5, 18), date(2026, 5, 21), date(2026, 5, 29), fold=2, folds=2)
    models = []
    for fold, split in enumerate((first, second), start=1):
        name = f"fold-{fold}"
        about = {"created": f"2026-06-0{fold}T00:00:00Z", "leak_certificate": "passed"}
        made = asked_bundle(CLOCKS, target="relative", seed=fold)
        made = replace(made, split=split, provenance=about, pipeline={"name": "demo"})
        save_bundle(made, space.trained / name)
        models.append(FoldModel(fold, name, "", split.to_dict(), {}))
    record = WalkForward("forward", "demo", "", 2, tuple(models))
    save_record(space, record)
    return record


def test_of_a_walk_forward_each_bar_is_predicted_by_the_model_that_had_not_seen_it(
    space: kp.Workspace, run: kp.Pipeline, bundle: ModelBundle, typed: Typed, tmp_path: Path
) -> None:
    record = walk_forward(space, bundle)
    rows = joined(turns_of(record, space), space, run, slice_bars=1_600)
    every = forecast(bundle, kp.scan_bars(space), span=SPAN, now=utc("2026-06-30")).rows
    assert rows.select(KEY).equals(every.select(KEY))  # each once
    border = utc("2026-05-30")  # the fold whose test span the predicted bar lies in
    want = rows.select(pl.when(pl.col("target_ts") < border).then(pl.lit("fold-1")).otherwise(pl.lit("fold-2")))
    assert rows["model"].to_list() == want.to_series().to_list()
    assert rows.filter(pl.col("bar_ts") == utc("2026-05-29T19:55"))["model"].unique().to_list() == ["fold-2"]
    assert not rows["note"].str.contains("span").any()
    for turn in turns_of(record, space):
        single = forecast(turn.bundle, kp.scan_bars(space), span=SPAN, now=utc("2026-06-30")).rows
        both = rows.filter(pl.col("model") == turn.bundle.name).join(single, on=KEY, suffix="_alone")
        assert (both["expected_return_bps"] - both["expected_return_bps_alone"]).abs().max() < 1e-4  # type: ignore[operator]

    words = ("predict", "-p", "demo", "-w", str(space.root), "--start", "2026-05-05", "--end", "2026-06-09T17:00:00Z")
    clock = ("--now", "2026-06-30T00:00:00Z")
    code, _, err = typed(*words, *clock, "--format", "parquet", "-o", str(tmp_path / "rows.parquet"))
    assert code == 0, err
    assert "walk-forward forward: each bar by the one of 2 models that had not seen it" in err
    table = pl.read_parquet(tmp_path / "rows.parquet")
    assert table.schema == rows.schema
    late = table.filter(pl.col("bar_ts") >= SPAN[0]).sort(KEY)
    assert late.drop(FORECASTS).equals(rows.drop(FORECASTS))
    marked = table.with_columns(day=pl.col("target_ts").dt.date())
    for first, last, word in (
        (date(2026, 5, 5), SPLIT.validation_end, "in validation span"),
        (date(2026, 5, 7), SPLIT.calibration_end, "in calibration span"),
    ):
        part = marked.filter(pl.col("day").is_between(first, last), pl.col("model") == "fold-1")
        assert part["note"].str.contains(word, literal=True).all(), word
    code, out, _ = typed(*words, *clock, "--format", "csv")
    assert code == 0
    assert out.splitlines()[0] == ",".join(table.columns)
    assert len(out.splitlines()) == table.height + 1
    code, out, _ = typed(*words, *clock, "--format", "json", "--model", "fold-2", "--symbols", "AAA,ZZZ")
    assert code == 3
    assert {row["model"] for row in json.loads(out)} == {"fold-2"}
    later = ("--start", "2026-07-10", "--end", "2026-07-11", "--format", "csv", "-o", str(tmp_path / "no.csv"))
    code, _, err = typed(*words[:5], *later)
    assert code == 1
    assert "expected: at least one symbol" in err
    assert not (tmp_path / "no.csv").exists()


def test_a_batch_in_which_nothing_has_bars_yet_costs_the_others_nothing(
    space: kp.Workspace, bundle: ModelBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the model's universe nothing is stored, so that the second batch is DDD alone, which begins too late."""
    alone = replace(bundle, universe=("XXX",), calendars={"XXX": "XNYS"})
    begun = (pl.col("symbol") != "DDD") | (pl.col("ts") >= utc("2026-06-05"))
    monkeypatch.setattr("klinepred.crowd.BATCH", 1)
    answer = forecast_many(
        alone,
        lambda names: Bars(kp.scan_bars(space, symbols=names).filter(begun)),
        symbols=("AAA", "DDD"),
        stored={"AAA", "DDD"},
        as_of=utc("2026-06-02T16:00"),
    )
    assert answer.rows["symbol"].to_list() == ["AAA"]
    assert answer.prices["symbol"].to_list() == ["AAA"]
    assert answer.failures == {"DDD": "no data for DDD finished by 2026-06-02T16:00:00Z"}
    late = forecast(alone, Bars(kp.scan_bars(space).head(0)), symbols=("DDD",), now=NOW, need_rows=False)
    assert (late.rows.schema, late.prices.schema) == (answer.rows.schema, answer.prices.schema)
