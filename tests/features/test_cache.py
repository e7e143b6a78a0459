"""In: bars that grow, shrink, change. Out: the cache gives what `build_features` gives, with the least work."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from klinepred.bars.check import check_bars
from klinepred.engine.engine import Here
from klinepred.errors import FeatureError
from klinepred.features.build import F50, build_features
from klinepred.features.cache import Cached, cached_features, kept_features
from klinepred.features.custom import features_for
from klinepred.schema import Bars
from klinepred.settings import FeatureSettings
from tests.bars.made import XNYS, utc, walk

NAMES = ["AAA", "BBB", "CCC", "DDD", "EEE", "FFF", "brk-b"]
UNIVERSE = tuple(NAMES[:6])


@pytest.fixture(scope="module")
def bars() -> pl.DataFrame:
    """Seven symbols over a change of quarter; one trades a bar in four, one comes late, one has a gap of days."""
    table = walk(NAMES, start="2026-04-20", days=95, seed=11)
    spot = pl.int_range(pl.len()).over("symbol")
    seldom = (pl.col("symbol") == "BBB") & (spot % 4 != 0)
    late = (pl.col("symbol") == "CCC") & (pl.col("ts") < utc("2026-06-25T00:00:00"))
    gap = (pl.col("symbol") == "DDD") & pl.col("ts").is_between(utc("2026-06-26T00:00:00"), utc("2026-07-06T00:00:00"))
    return check_bars(table.filter(~(seldom | late | gap)), clock=XNYS).collect()


def _cached(bars: pl.DataFrame, folder: Path, universe: tuple[str, ...] = UNIVERSE) -> Cached:
    return cached_features(Bars(bars.lazy()), F50, universe=universe, folder=folder)


def _assert_same(got: pl.DataFrame, bars: pl.DataFrame, universe: tuple[str, ...] = UNIVERSE) -> None:
    want = build_features(bars, universe=universe).frame
    assert got.select("symbol", "ts", "close").equals(want.select("symbol", "ts", "close"))
    for name in F50.names:
        one, two = got[name].to_numpy(), want[name].to_numpy()
        np.testing.assert_array_equal(np.isnan(one), np.isnan(two), err_msg=name)
        known = ~np.isnan(two)
        spread = float(two[known].std()) if known.any() else 0.0
        assert (np.abs(one - two)[known] <= 1e-6 * np.maximum(np.abs(two[known]), spread)).all(), name


def test_the_first_time_gives_every_bit_and_the_second_computes_nothing(bars: pl.DataFrame, tmp_path: Path) -> None:
    first = _cached(bars, tmp_path)
    assert (first.bars, first.computed) == (bars.height, bars.height)
    assert first.frame().frame.equals(build_features(bars, universe=UNIVERSE).frame)
    again = _cached(bars, tmp_path)
    assert again.computed == 0
    assert again.frame().frame.equals(first.frame().frame)


def test_a_day_more_costs_a_day(bars: pl.DataFrame, tmp_path: Path) -> None:
    cut = bars["ts"].max()
    assert cut is not None
    before = bars.filter(pl.col("ts") < cut - timedelta(hours=12))  # type: ignore[operator]
    _cached(before, tmp_path)
    more = _cached(bars, tmp_path)
    assert more.computed == bars.height - before.height
    _assert_same(more.frame().frame, bars)


@pytest.mark.parametrize("row", [0, 700, -1])
def test_a_revision_counts_from_its_bar_on(bars: pl.DataFrame, tmp_path: Path, row: int) -> None:
    _cached(bars, tmp_path)
    mine = bars.filter(pl.col("symbol") == "EEE")
    at = mine["ts"][row]
    one = (pl.col("symbol") == "EEE") & (pl.col("ts") == at)
    changed = bars.with_columns(close=pl.when(one).then(pl.col("low")).otherwise("close"))
    got = _cached(changed, tmp_path)
    assert got.computed == mine.filter(pl.col("ts") >= at).height
    _assert_same(got.frame().frame, changed)
    back = _cached(bars, tmp_path)
    _assert_same(back.frame().frame, bars)


def test_bars_and_symbols_that_go_leave_nothing_behind(bars: pl.DataFrame, tmp_path: Path) -> None:
    _cached(bars, tmp_path)
    less = bars.filter((pl.col("symbol") != "FFF") & (pl.col("ts") < utc("2026-06-10T15:00:00")))
    _assert_same(_cached(less, tmp_path).frame().frame, less)
    holed = bars.filter(~((pl.col("symbol") == "AAA") & (pl.col("ts") == bars["ts"][50])))
    _assert_same(_cached(holed, tmp_path).frame().frame, holed)


def test_another_universe_has_a_cross_section_of_its_own(bars: pl.DataFrame, tmp_path: Path) -> None:
    _cached(bars, tmp_path)
    other = _cached(bars, tmp_path, tuple(NAMES))
    assert other.computed == 0
    _assert_same(other.frame().frame, bars, tuple(NAMES))
    _assert_same(_cached(bars, tmp_path).frame().frame, bars)


def test_damaged_and_missing_files_are_made_again(bars: pl.DataFrame, tmp_path: Path) -> None:
    want = _cached(bars, tmp_path).frame().frame
    files = sorted(tmp_path.rglob("*.arrow"))
    for number, path in enumerate(files):
        if number % 3 == 0:
            path.unlink()
        elif number % 3 == 1:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    got = _cached(bars, tmp_path)
    assert got.computed > 0
    _assert_same(got.frame().frame, bars)
    assert want.height == got.bars


def test_a_flipped_bit_anywhere_is_noticed(bars: pl.DataFrame, tmp_path: Path) -> None:
    want = _cached(bars, tmp_path).frame().frame
    files = sorted(tmp_path.rglob("*.arrow"))
    for number, path in enumerate(files):
        content = bytearray(path.read_bytes())
        content[(2 * number + 1) * len(content) // (2 * len(files))] ^= 1 << number % 8
        path.write_bytes(content)
    got = _cached(bars, tmp_path)
    assert got.computed == bars.height
    assert got.frame().frame.equals(want)


def test_a_file_of_another_kind_is_made_again(bars: pl.DataFrame, tmp_path: Path) -> None:
    want = _cached(bars, tmp_path).frame().frame
    for path, content in zip(sorted(tmp_path.rglob("*.arrow")), (b"", b"abc", b"\0" * 99), strict=False):
        path.write_bytes(content)
    assert _cached(bars, tmp_path).frame().frame.equals(want)


def test_a_file_that_goes_before_it_is_read_is_an_error_in_words(bars: pl.DataFrame, tmp_path: Path) -> None:
    kept = _cached(bars, tmp_path)
    kept.own[0].path.unlink()
    with pytest.raises(FeatureError, match="computed features in"):
        kept.frame()


def test_a_disk_that_takes_no_more_is_named_by_its_file_and_nothing_half_written_stays(
    bars: pl.DataFrame, tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            _cached(bars, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert str(caught.value.filename).endswith(".arrow")
    assert list(tmp_path.rglob("*.part")) == []
    assert _cached(bars, tmp_path).frame().frame.equals(build_features(bars, universe=UNIVERSE).frame)


def test_an_increment_of_slow_averages_gives_what_the_whole_history_gives(bars: pl.DataFrame, tmp_path: Path) -> None:
    """Without features of 20 sessions little history is taken along; an average of 48 bars still must not show it."""
    slow = features_for(FeatureSettings(exclude=("volume", "price__overnight_gap", "cross")))
    cut = bars.get_column("ts").unique().sort()[-70]
    for part in (bars.filter(pl.col("ts") < cut), bars):
        kept = cached_features(Bars(part.lazy()), slow, universe=UNIVERSE, folder=tmp_path)
    got, want = kept.frame().frame, build_features(bars, slow).frame
    one, two = (frame.filter(pl.col("symbol") == "EEE")["trend__ema_12_48"].to_numpy() for frame in (got, want))
    np.testing.assert_array_equal(one, two)


def test_a_build_waits_for_another_that_has_not_read_all(bars: pl.DataFrame, tmp_path: Path) -> None:
    """Two processes with two states of the store: each gets the features of its own."""
    early = bars.filter(pl.col("ts") < utc("2026-06-20T00:00:00"))
    wanted = {state.height: build_features(state, universe=UNIVERSE).frame for state in (early, bars)}

    def build(state: pl.DataFrame) -> bool:
        with kept_features(Bars(state.lazy()), F50, universe=UNIVERSE, folder=tmp_path) as kept:
            frame = kept.frame().frame
        _assert_same(frame, state)
        return frame.height == wanted[state.height].height

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(build, [early, bars] * 3))


def test_another_calendar_computes_everything_anew(bars: pl.DataFrame, tmp_path: Path) -> None:
    _cached(bars, tmp_path)
    other = bars.with_columns(calendar=pl.lit("XNYS+extended").cast(pl.Categorical))
    got = _cached(other, tmp_path)
    assert got.computed == bars.height
    _assert_same(got.frame().frame, other)


def test_features_of_the_users_own_are_kept_as_well(bars: pl.DataFrame, tmp_path: Path) -> None:
    sql = "STDDEV(LN(close / LAG(close, 2))) OVER (PARTITION BY session ORDER BY ts ROWS 9 PRECEDING)"
    own = features_for(FeatureSettings(custom={"custom__move_9": sql}, exclude=("cross",)))
    cut = bars.get_column("ts").unique().sort()[-40]
    for part in (bars.filter(pl.col("ts") < cut), bars):
        kept = cached_features(Bars(part.lazy()), own, universe=UNIVERSE, folder=tmp_path)
        want = build_features(part, own).frame
        got = kept.frame().frame
        assert got.columns == want.columns
        one, two = (frame.get_column("custom__move_9") for frame in (got, want))
        assert one.is_null().equals(two.is_null())
        np.testing.assert_allclose(one.drop_nulls(), two.drop_nulls(), rtol=1e-6)
    assert 0 < kept.computed < bars.height / 10


def test_the_cross_section_is_worked_through_by_quarters_that_read_no_old_ones(tmp_path: Path) -> None:
    """Who computes may be many at once, and what one of them reads does not grow with the history."""
    long = check_bars(walk(NAMES[:3], start="2025-01-06", days=400, seed=12), clock=XNYS).collect()
    quarters = long.select(pl.col("ts").dt.year(), quarter=pl.col("ts").dt.quarter()).n_unique()
    seen: list[list[int]] = []

    class Watched(Here):
        workers = 2

        def map(self, function: Callable[[Any], Any], things: Iterable[Any]) -> Iterator[Any]:
            work = [*things]
            seen.append([len(getattr(one, "reads", ())) for one in work])
            return map(function, work)

    one = cached_features(Bars(long.lazy()), F50, universe=NAMES[:3], folder=tmp_path / "one", engine=Watched())
    _, across = seen
    assert len(across) == quarters > 4
    assert max(across) == 2
    assert one.frame().frame.equals(build_features(long, universe=NAMES[:3]).frame)
    again = cached_features(Bars(long.lazy()), F50, universe=NAMES[:3], folder=tmp_path / "one", engine=Watched())
    assert again.computed == 0
    assert seen[3] == []
