"""In: feature tables of simulated symbols. Out: what a Dataset promises; nothing of the held-out rows leaks in."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from klinepred.bars.check import check_bars
from klinepred.bars.sources.simulate import simulate
from klinepred.calendar import Clock
from klinepred.dataset.make import Dataset, choose_fold, make_dataset
from klinepred.dataset.split import PARTS, make_splits
from klinepred.errors import DatasetError
from klinepred.features.build import FeatureFrame, build_features
from klinepred.features.spec import Feature, FeatureSet
from klinepred.settings import DatasetSettings, SimulateSettings, SplitSettings

END = date(2026, 3, 31)


@pytest.fixture(scope="module")
def table() -> FeatureFrame:
    settings = SimulateSettings(symbols=6, start=date(2026, 1, 2), end=END, seed=3)
    frame = pl.concat([delivery.frame for delivery in simulate(settings, clock=Clock("XNYS"))])
    return build_features(check_bars(frame.sort("symbol", "ts"), clock=Clock("XNYS")))


@pytest.fixture(scope="module")
def data(table: FeatureFrame) -> Dataset:
    return make_dataset(table, DatasetSettings())


def test_rows_are_usable_once_the_lookback_lies_behind_them(table: FeatureFrame, data: Dataset) -> None:
    for symbol in table.calendars:
        rows = table.frame.filter(pl.col("symbol") == symbol)
        kept = data.rows.filter(pl.col("symbol") == symbol)
        first = kept["ts"][0]
        before = rows.filter(pl.col("ts") < first)
        sessions = before["ts"].dt.date().unique().len()
        assert sessions == 20  # whole sessions behind the first usable bar
        assert before.height + 1 >= table.features.lookback_bars
        assert kept.height == rows.height - before.height


def test_parts_follow_each_other_and_every_label_ends_inside_its_part(data: Dataset) -> None:
    frame = data.rows.with_columns(part=pl.Series(data.part_N)).filter(pl.col("part") >= 0)
    spans = frame.group_by("part").agg(first=pl.col("session").min(), last=pl.col("session").max()).sort("part")
    assert spans["part"].to_list() == [0, 1, 2, 3]
    ends = [data.split.train_end, data.split.validation_end, data.split.calibration_end]
    for part, end in enumerate(ends):
        # the last bar of a part's last session looks into the next part: its label belongs there
        mine = frame.filter(pl.col("part") == part)
        assert mine["session"].max() == end
        last = mine.filter(pl.col("session") == end)["ts"].max()
        assert data.rows.filter(pl.col("session") == end)["ts"].max() > last  # type: ignore[operator]
    counts = data.counts()
    assert list(counts) == list(PARTS)
    assert all(count > 0 for count in counts.values())
    assert sum(counts.values()) == int(np.isfinite(data.y_N).sum())


def test_features_are_scaled_by_train_rows_and_finite(table: FeatureFrame, data: Dataset) -> None:
    train = (data.rows["session"] <= data.split.train_end).to_numpy()
    name = "volatility__realised_78"
    index = table.features.names.index(name)
    raw = table.frame.join(data.rows.select("symbol", "ts"), on=["symbol", "ts"], how="semi")[name].to_numpy()
    centre, spread = raw[train].astype(float).mean(), raw[train].astype(float).std()
    assert data.scaler.centre_F[index] == pytest.approx(centre, rel=1e-6)
    assert data.scaler.scale_F[index] == pytest.approx(spread, rel=1e-6)
    assert data.x_NF[:, index] == pytest.approx(np.clip((raw - centre) / spread, -6, 6), abs=1e-4)
    assert np.isfinite(data.x_NF).all()
    assert np.abs(data.x_NF).max() <= 6.0


def test_held_out_rows_change_neither_scaler_nor_split_nor_train_rows(table: FeatureFrame, data: Dataset) -> None:
    held = pl.col("ts").dt.date() > data.split.train_end
    wild = table.frame.with_columns(
        pl.when(held).then(1000.0).otherwise(pl.col(name)).cast(pl.Float32).alias(name) for name in table.features.names
    )
    other = make_dataset(replace(table, frame=wild), DatasetSettings())
    assert other.scaler.to_dict() == data.scaler.to_dict()
    assert other.split == data.split
    train = data.mask("train")
    assert np.array_equal(other.x_NF[train], data.x_NF[train])
    assert np.array_equal(other.y_N[train], data.y_N[train])


def test_a_model_s_scaler_and_split_are_used_as_they_are(table: FeatureFrame, data: Dataset) -> None:
    fewer = replace(table, frame=table.frame.filter(pl.col("symbol") != "SIM003"))
    again = make_dataset(fewer, data.settings, scaler=data.scaler, split=data.split)
    here = (data.rows["symbol"] != "SIM003").to_numpy()
    assert np.array_equal(again.x_NF, data.x_NF[here])
    assert np.array_equal(again.vol_N, data.vol_N[here], equal_nan=True)


def test_explicit_dates_part_the_rows(table: FeatureFrame) -> None:
    split = SplitSettings(train_end=date(2026, 2, 27), validation_end=date(2026, 3, 13))
    data = make_dataset(table, DatasetSettings(split=split))
    assert data.split.train_end == date(2026, 2, 27)
    assert data.split.calibration_end == date(2026, 3, 13)
    assert data.split.validation_end == date(2026, 3, 10)  # ten sessions of validation, the last three calibrate


def test_window_cut_owns_the_rows_that_have_a_whole_window_behind_them(table: FeatureFrame) -> None:
    data = make_dataset(table, DatasetSettings(cut="window", window=78))
    owned = data.sequences.owned(data.part_N.size)
    per_symbol = data.rows.select(pl.int_range(pl.len()).over("symbol")).to_series().to_numpy()
    assert np.array_equal(owned, per_symbol >= 77)


def test_folds_are_numbered_from_one() -> None:
    days = [date(2026, 1, 1) + timedelta(days=number) for number in range(30)]
    splits = make_splits(days, SplitSettings(folds=2))
    assert [choose_fold(splits, number) for number in (1, 2)] == list(splits)
    for number in (0, 3):
        with pytest.raises(DatasetError, match="1 to 2"):
            choose_fold(splits, number)


def test_a_fold_has_its_dates_and_the_scaler_of_its_own_train_rows(table: FeatureFrame) -> None:
    settings = DatasetSettings(split=SplitSettings(train=0.5, validation=0.2, folds=2, scheme="rolling"))
    first, second = (make_dataset(table, settings, fold=number) for number in (1, 2))
    assert (first.split.fold, second.split.fold) == (1, 2)
    assert first.split.test_end is not None
    assert second.split.train_start is not None
    assert second.split.calibration_end == first.split.test_end  # what the first is tested on the second has seen
    name = "volatility__realised_78"
    raw = second.rows.select("symbol", "ts", "session").join(table.frame, on=["symbol", "ts"], maintain_order="left")
    inside = raw.filter(pl.col("session").is_between(second.split.train_start, second.split.train_end))
    index = table.features.names.index(name)
    assert second.scaler.centre_F[index] == pytest.approx(inside[name].cast(pl.Float64).mean(), rel=1e-9)
    assert first.scaler.centre_F[index] != second.scaler.centre_F[index]


def test_bars_before_the_first_usable_one_are_counted_by_part_and_symbols_without_any_are_named(
    table: FeatureFrame, data: Dataset
) -> None:
    early = table.frame.height - data.rows.height
    assert data.warm_up == {"train": early}
    assert data.lacking == {}
    late = table.frame.filter((pl.col("symbol") != "SIM003") | (pl.col("ts").dt.date() >= date(2026, 3, 25)))
    other = make_dataset(replace(table, frame=late), DatasetSettings(), scaler=data.scaler, split=data.split)
    its = late.filter(pl.col("symbol") == "SIM003")
    days = its["ts"].dt.date().n_unique()
    assert other.lacking == {"SIM003": (its.height, days - 1)}  # its own session is no whole one behind it
    assert sum(other.warm_up.values()) == late.height - other.rows.height == early * 5 // 6 + its.height
    assert set(other.warm_up) == {"train", "test"}
    begins = table.frame.get_column("ts").dt.date().unique().sort()[9]  # amid the bars that are too early
    before = table.frame.filter(pl.col("ts").dt.date() < begins).height
    fold = replace(data.split, train_start=begins)
    rolling = make_dataset(table, DatasetSettings(), scaler=data.scaler, split=fold)
    assert rolling.warm_up == {"outside": before, "train": early - before}
    few = replace(table, frame=its)
    none = make_dataset(few, DatasetSettings(), scaler=data.scaler, split=data.split, need_rows=False)
    assert (none.rows.height, none.x_NF.shape) == (0, (0, len(table.features.names)))
    with pytest.raises(DatasetError, match=f"{its.height} bars and {days - 1} sessions"):
        make_dataset(few, DatasetSettings(), scaler=data.scaler, split=data.split)


@pytest.mark.parametrize(
    ("bars", "sessions", "first"), [(1, 0, 0), (30, 0, 29), (100, 1, 99), (30, 1, 78), (30, 2, 156)]
)
def test_a_row_is_usable_from_exactly_its_looked_back_bars_and_sessions_on(
    bars: int, sessions: int, first: int, table: FeatureFrame, data: Dataset
) -> None:
    """78 bars a session; of both demands the later one decides."""
    plain = Feature("price__plain", "c", pl.col("close"), bars, bars, "", lookback_sessions=sessions)
    frame = table.frame.select("symbol", "ts", "close", price__plain=pl.col("close").cast(pl.Float32))
    small = replace(table, frame=frame, features=FeatureSet("plain", (plain,)))
    got = make_dataset(small, DatasetSettings(target="raw"), split=data.split).rows
    for symbol in table.calendars:
        its = frame.filter(pl.col("symbol") == symbol)["ts"]
        assert got.filter(pl.col("symbol") == symbol)["ts"].to_list() == its[first:].to_list()


def test_no_bars_at_all_are_too_little_history_too(table: FeatureFrame, data: Dataset) -> None:
    empty = replace(table, frame=table.frame.clear(), calendars={})
    with pytest.raises(DatasetError, match="0 bars and 0 sessions at most"):
        make_dataset(empty, DatasetSettings(), scaler=data.scaler, split=data.split)


def test_each_symbol_has_its_calendar_and_its_span(data: Dataset) -> None:
    spans = data.spans().select("symbol", "calendar", "first_session", "last_session")
    assert spans["symbol"].to_list() == [f"SIM00{number}" for number in range(1, 7)]
    assert set(spans["calendar"]) == {"XNYS"}
    for symbol, _, first, last in spans.iter_rows():
        own = data.rows.filter(pl.col("symbol") == symbol)["session"]
        assert (first, last) == (own.min(), own.max())


def test_the_arrays_have_the_kinds_that_are_promised_and_a_file_holds_the_same(
    table: FeatureFrame, data: Dataset, tmp_path: Path
) -> None:
    kinds = {"x_NF": "float32", "y_N": "float32", "raw_N": "float32", "return_N": "float64", "vol_N": "float32"}
    for name, kind in {**kinds, "kind_N": "int8", "part_N": "int8"}.items():
        assert getattr(data, name).dtype == kind, name
    filed = make_dataset(table, DatasetSettings(), on_disk=True, folder=tmp_path)
    assert isinstance(filed.x_NF, np.memmap)
    assert not isinstance(data.x_NF, np.memmap)
    assert np.array_equal(filed.x_NF, data.x_NF)
    with pytest.raises(FileNotFoundError):
        make_dataset(table, DatasetSettings(), on_disk=True, folder=tmp_path / "none")
    for part in PARTS:  # a label belongs to a part once some sequence owns its row
        own = np.isfinite(data.y_N) & (data.part_N == PARTS.index(part))
        assert np.array_equal(data.mask(part), own & data.sequences.owned(own.size))
    assert data.rows.columns == ["symbol", "ts", "session", "close", "end_part", "removed", "label_session"]


def test_too_few_symbols_for_a_relative_target_say_what_to_do(table: FeatureFrame) -> None:
    few = table.frame.filter(pl.col("symbol").is_in(["SIM001", "SIM002"]))
    small = replace(table, frame=few, universe=("SIM001", "SIM002"))
    with pytest.raises(DatasetError, match=r"dataset\.target=raw"):
        make_dataset(small, DatasetSettings())
    assert make_dataset(small, DatasetSettings(target="raw")).counts()["test"] > 0


def test_too_little_history_is_refused_with_both_numbers(table: FeatureFrame) -> None:
    short = replace(table, frame=table.frame.filter(pl.col("ts").dt.date() < date(2026, 1, 20)))
    with pytest.raises(DatasetError) as caught:
        make_dataset(short, DatasetSettings())
    assert "420 bars and 20 finished sessions" in str(caught.value)
    assert "got:      858 bars and 10 sessions" in str(caught.value)


def test_too_few_sessions_for_four_parts_are_refused(table: FeatureFrame) -> None:
    short = replace(table, frame=table.frame.filter(pl.col("ts").dt.date() < date(2026, 2, 5)))
    with pytest.raises(DatasetError, match="8 labelled sessions"):
        make_dataset(short, DatasetSettings())
