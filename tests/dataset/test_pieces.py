"""In: features in memory and in files, cut small. Out: the same dataset, which is what all rows at once would give."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from klinepred.bars.check import check_bars
from klinepred.bars.sources.simulate import simulate
from klinepred.calendar import Clock
from klinepred.dataset import scale, target
from klinepred.dataset.make import Dataset, make_dataset
from klinepred.dataset.pieces import pieces
from klinepred.dataset.target import add_targets
from klinepred.errors import FeatureError
from klinepred.features.build import F50, FeatureFrame
from klinepred.features.cache import Cached, cached_features
from klinepred.schema import CALENDAR
from klinepred.settings import DatasetSettings, SimulateSettings

SETTINGS = DatasetSettings()
SMALL = 6_000
"""Rows of a piece: more than one symbol has, fewer than two have."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Cached:
    settings = SimulateSettings(symbols=7, start=date(2026, 1, 2), end=date(2026, 4, 15), seed=5)
    frame = pl.concat([delivery.frame for delivery in simulate(settings, clock=Clock("XNYS"))])
    late = (pl.col("symbol") == "SIM003") & (pl.col("ts").dt.date() < date(2026, 2, 2))
    gaps = (pl.col("symbol") == "SIM005") & (pl.col("ts").dt.ordinal_day() % 7 == 3)
    short = (pl.col("symbol") == "SIM006") & (pl.col("ts").dt.date() < date(2026, 4, 7))
    bars = check_bars(frame.filter(~late & ~gaps & ~short).sort("symbol", "ts"), clock=Clock("XNYS"))
    names = bars.collect().get_column("symbol").unique().sort().to_list()
    return cached_features(bars, F50, universe=names, folder=tmp_path_factory.mktemp("kept"))


@pytest.fixture(scope="module")
def table(kept: Cached) -> FeatureFrame:
    return kept.frame()


@pytest.fixture(scope="module")
def whole(table: FeatureFrame) -> Dataset:
    """Everything in one piece, means and scaler over all rows at once."""
    return make_dataset(table, SETTINGS)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is done a few rows at a time."""
    monkeypatch.setattr(target, "BLOCK", SMALL)
    monkeypatch.setattr(target, "SLICE", 1_000)
    monkeypatch.setattr(scale, "STEP", 333)


def assert_same(one: Dataset, two: Dataset) -> None:
    for name in (field.name for field in fields(Dataset)):
        mine, other = getattr(one, name), getattr(two, name)
        if isinstance(mine, np.ndarray):
            assert mine.dtype == other.dtype
            np.testing.assert_array_equal(mine, other, err_msg=name)
        elif isinstance(mine, pl.DataFrame):
            assert mine.equals(other)
        elif name == "scaler":
            assert mine.to_dict() == other.to_dict()
        elif name == "sequences":
            assert all(np.array_equal(vars(mine)[key], vars(other)[key]) for key in vars(mine))
        else:
            assert mine == other, name


@pytest.mark.usefixtures("small")
def test_pieces_are_whole_symbols_and_all_rows(kept: Cached, table: FeatureFrame) -> None:
    for source in (kept, table):
        found = list(pieces(source))
        assert len(found) > 3
        symbols = [set(piece.get_column("symbol").unique()) for piece in found]
        assert sum(len(some) for some in symbols) == len(table.calendars)
        assert pl.concat(found).equals(table.frame)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("on_disk", [False, True])
def test_a_dataset_from_files_a_few_rows_at_a_time_is_that_of_all_rows_at_once(
    kept: Cached, whole: Dataset, tmp_path: Path, on_disk: bool
) -> None:
    found = make_dataset(kept, SETTINGS, on_disk=on_disk, folder=tmp_path)
    assert isinstance(found.x_NF, np.memmap) == on_disk
    assert whole.lacking
    assert_same(found, whole)
    again = make_dataset(kept, SETTINGS, scaler=whole.scaler, split=whole.split, on_disk=on_disk, folder=tmp_path)
    assert_same(again, whole)


@pytest.mark.usefixtures("small")
def test_an_earlier_state_of_the_store_is_read_out_of_the_same_files(kept: Cached, table: FeatureFrame) -> None:
    last = table.frame.get_column("ts").unique().sort()[-400]
    before = replace(table, frame=table.frame.filter(pl.col("ts") <= last))
    assert_same(make_dataset(replace(kept, until=last), SETTINGS), make_dataset(before, SETTINGS))


def test_targets_are_those_of_all_symbols_at_once(table: FeatureFrame, whole: Dataset) -> None:
    clocks = pl.lit("XNYS").alias(CALENDAR)
    closes = table.frame.select("symbol", "ts", "close", clocks)
    want = add_targets(closes, SETTINGS, universe=table.universe).join(
        whole.rows.select("symbol", "ts"), on=["symbol", "ts"], how="semi", maintain_order="left"
    )
    for name, got_N in (("y", whole.y_N), ("raw", whole.raw_N), ("vol", whole.vol_N), ("ret", whole.return_N)):
        np.testing.assert_array_equal(got_N, want.get_column(name).fill_null(np.nan).to_numpy().astype(got_N.dtype))


def test_a_scaler_fitted_block_by_block_is_that_of_all_rows_within_1e_12(
    kept: Cached, table: FeatureFrame, whole: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy over a whole column is the answer; blocks of 1,000 rows may differ from it by its own rounding."""
    train = whole.rows.filter(pl.col("session") <= whole.split.train_end)
    rows = table.frame.join(train.select("symbol", "ts"), on=["symbol", "ts"], how="semi")
    columns = [rows.get_column(name).drop_nulls().cast(pl.Float64).to_numpy() for name in F50.names]
    mean_F, std_F = (np.array([getattr(column, what)() for column in columns]) for what in ("mean", "std"))
    assert np.array_equal(whole.scaler.centre_F, mean_F)  # one block: to the last bit
    assert np.array_equal(whole.scaler.scale_F, std_F)
    monkeypatch.setattr(scale, "BLOCK", 1_000)
    found = make_dataset(kept, SETTINGS).scaler
    assert np.abs(found.centre_F - mean_F).max() <= 1e-12 * std_F.min()
    np.testing.assert_allclose(found.scale_F, std_F, rtol=1e-12)


def test_files_that_do_not_belong_together_are_refused(kept: Cached) -> None:
    with pytest.raises(FeatureError, match="as many as the symbols have"):
        make_dataset(replace(kept, across=kept.across[::-1], own=kept.own[:-1]), SETTINGS)
