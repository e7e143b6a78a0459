"""In: replayed sessions with faults injected. Out: follow says what predict says, of the store as it was just then."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import klinepred as kp
from klinepred.bars.store import scan_bars, store_version, stored_clocks
from klinepred.live.carried import Carried
from klinepred.live.feed import fed_by
from klinepred.live.follow import Follower, Plan
from klinepred.live.watch import ReplayWatch
from klinepred.model.bundle import ModelBundle
from klinepred.prediction import forecast
from klinepred.schema import BAR
from klinepred.settings import DatasetSettings
from tests.live import faulty_source as market

NUMBERS = ["expected_return_bps", "p_up", "lo80_bps", "hi80_bps"]
WORDS = ["symbol", "bar_ts", "target_ts", "stale", "in_training", "note"]
NOW = timedelta(0)


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    return market.bars()


@dataclass
class Heard:
    """What a run put out, and from which version of the store."""

    space: kp.Workspace
    rows: list[tuple[int, pl.DataFrame]] = field(default_factory=list)

    def __call__(self, rows: pl.DataFrame, _prices: pl.DataFrame, version: int) -> None:
        assert version == store_version(self.space)
        self.rows.append((version, rows))


def follow(
    space: kp.Workspace,
    bundle: ModelBundle,
    source: market.FaultySource,
    heard: Heard,
    *,
    ends: list[datetime],
) -> list[Carried]:
    """Follow to the last of `ends`, with a new process after each."""
    symbols = tuple(sorted(source.rows["symbol"].unique()))
    shown: dict[str, datetime] = {}
    used = []
    start = market.BEGIN
    for until in ends:
        predictor = Carried(bundle, space, symbols)
        plan = Plan(stored_clocks(space), bundle.universe, delay=NOW, patience=NOW, until=until, again=False)
        feed = fed_by(source, market.DATA, space)
        Follower(plan, space, predictor, feed, ReplayWatch(start), heard, shown=shown).run()
        used.append(predictor)
        start = until
    return used


def check(bundle: ModelBundle, heard: Heard) -> None:
    for version, put_out in heard.rows:
        close = put_out["asof"].max()
        assert isinstance(close, datetime)
        whole = forecast(bundle, scan_bars(heard.space, as_of=version), as_of=close, now=close).rows
        mine = whole.join(put_out.select("symbol", "bar_ts"), on=["symbol", "bar_ts"], how="semi").sort("symbol")
        assert mine.select(WORDS).equals(put_out.select(WORDS))
        for name in NUMBERS:
            a, b = (frame[name].fill_null(float("nan")).to_numpy() for frame in (put_out, mine))
            assert a == pytest.approx(b, rel=1e-6, abs=1e-6, nan_ok=True), (close, name)


SETTINGS = {
    "session": (DatasetSettings(), 0),
    "no burn-in": (DatasetSettings(burn_in=0), 0),
    "window": (DatasetSettings(cut="window", window=9), 0),
    "flatten, three bars ahead": (DatasetSettings(cut="window", window=9, horizon=3), 9),
}


@pytest.mark.parametrize(("seed", "kind"), [(0, "session"), (1, "session"), (2, "no burn-in"), (3, "window")])
def test_follow_equals_batch_after_any_fault(seed: int, kind: str, rows: pl.DataFrame, tmp_path: Path) -> None:
    space = market.store(tmp_path, rows.filter(pl.col("ts") + BAR <= market.BEGIN))
    symbols = tuple(sorted(rows["symbol"].unique()))
    dataset, flatten = SETTINGS[kind]
    bundle = market.model(symbols, dataset=dataset, flatten=flatten)
    source = market.FaultySource(rows, np.random.default_rng(seed), rate=0.12)
    heard = Heard(space)
    middle = datetime.fromisoformat("2026-04-27T13:45:00Z")
    follow(space, bundle, source, heard, ends=[middle, market.END])
    assert len(heard.rows) > 6
    assert len(source.happened) >= 4
    check(bundle, heard)


@pytest.mark.parametrize("kind", SETTINGS)
def test_without_faults_nothing_is_read_twice_and_all_is_equal(kind: str, rows: pl.DataFrame, tmp_path: Path) -> None:
    space = market.store(tmp_path, rows.filter(pl.col("ts") + BAR <= market.BEGIN))
    symbols = tuple(sorted(rows["symbol"].unique()))
    dataset, flatten = SETTINGS[kind]
    bundle = market.model(symbols, dataset=dataset, flatten=flatten)
    source = market.FaultySource(rows, np.random.default_rng(0), rate=0.0)
    heard = Heard(space)
    (predictor,) = follow(space, bundle, source, heard, ends=[datetime.fromisoformat("2026-04-27T13:45:00Z")])
    assert predictor.rebuilt == 1
    assert [one.height for _, one in heard.rows] == [6] * 8
    check(bundle, heard)
