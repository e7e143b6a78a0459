"""In: bars. Out: moments of every kind to cut at, futures that leave the past alone."""

from __future__ import annotations

import polars as pl
import pytest

from klinepred.audit.features import windows
from klinepred.audit.futures import FUTURES, choose_cuts, strangers
from klinepred.audit.stages import Evidence
from klinepred.bars.check import check_bars
from klinepred.calendar import Clock, place
from klinepred.features.build import F50
from klinepred.features.spec import FeatureSet
from klinepred.settings import DatasetSettings
from tests.audit.clean import clean_pipeline

EVIDENCE = clean_pipeline(10)  # XNYS from 2026-02-09
GAPPY = clean_pipeline(25)


def test_cuts_lie_amid_sessions_at_their_edges_and_at_gaps() -> None:
    cuts = choose_cuts(EVIDENCE.bars, most=12)
    assert len({cut.ts for cut in cuts}) == len(cuts) == 12
    kinds = " / ".join(cut.where for cut in cuts)
    for kind in ("amid a session", "first bar of a session", "last bar of a session", "after a gap", "before a gap"):
        assert kind in kinds
    first = next(cut for cut in cuts if cut.where == "first bar of a session")
    assert place(EVIDENCE.bars.filter(pl.col("ts") == first.ts))["bar"].unique().to_list() == [0]
    assert max(cut.ts for cut in cuts) < EVIDENCE.bars["ts"].max()  # type: ignore[operator]


def test_the_same_bars_are_cut_at_the_same_moments() -> None:
    assert choose_cuts(GAPPY.bars, most=9) == choose_cuts(GAPPY.bars, most=9)


@pytest.mark.parametrize("name", FUTURES)
def test_another_future_is_one_of_real_bars_and_has_the_same_past(name: str) -> None:
    bars = EVIDENCE.bars
    cut = choose_cuts(bars, most=1)[0]
    other = FUTURES[name](bars, bars["ts"] > cut.ts)
    past = pl.col("ts") <= cut.ts
    assert other.filter(past).equals(bars.filter(past))
    assert not other.filter(~past).equals(bars.filter(~past))
    check_bars(other.select(pl.exclude("calendar")), clock=Clock("XNYS"))


def test_strangers_stand_before_and_behind_and_change_no_member() -> None:
    beside = strangers(EVIDENCE.bars)
    names = beside["symbol"].unique().sort().to_list()
    assert names[0] not in EVIDENCE.universe
    assert names[-1] not in EVIDENCE.universe
    members = beside.filter(pl.col("symbol").is_in(EVIDENCE.universe))
    assert members.sort("symbol", "ts").equals(EVIDENCE.bars.select(members.columns))


def test_of_a_long_history_the_oldest_and_the_newest_sessions_are_taken() -> None:
    few = [part.height for part in windows(EVIDENCE, rows=10**9)]
    assert few == [EVIDENCE.bars.height]
    clock = FeatureSet("clock", tuple(one for one in F50.features if one.family == "clock"))
    short = Evidence(EVIDENCE.bars, EVIDENCE.universe, clock, DatasetSettings(), "")
    parts = windows(short, rows=5000)
    assert sum(part.height for part in parts) < EVIDENCE.bars.height
    assert all(part["symbol"].n_unique() >= 6 for part in parts)
    assert parts[-1]["ts"].max() == EVIDENCE.bars["ts"].max()
