"""In: bars of which stretches are changed. Out: what is said to be untouched is, and a look ahead shows anywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from klinepred.audit.columns import bit_faults
from klinepred.audit.depth import FAST, THOROUGH
from klinepred.audit.features import examine_features
from klinepred.audit.islands import Islands, islands
from klinepred.audit.stages import Evidence, pipeline_stages
from klinepred.bars.check import check_bars
from klinepred.calendar import Clock
from klinepred.features.spec import Feature, FeatureSet
from klinepred.schema import VALUES
from klinepred.settings import DatasetSettings
from tests.features.frames import market

C = pl.col("close")
BACK = C / C.shift(1) - 1.0
AHEAD = C.shift(-1) / C - 1.0


def _feature(expression: pl.Expr, *, name: str = "own__x", bars: int = 2, sessions: int = 0) -> Feature:
    return Feature(name, "f", expression, first_value=1, lookback_bars=bars, lookback_sessions=sessions, source="test")


@pytest.fixture(scope="module")
def bars() -> pl.DataFrame:
    table = market("ABC", days=40, silent=0.01, lost=0.01)
    return check_bars(table.drop("calendar"), clock=Clock("XNYS")).collect()


def _faults(bars: pl.DataFrame, *features: Feature, thorough: bool = False) -> dict[str, list[str]]:
    own = FeatureSet("own", features)
    evidence = Evidence(bars, ("A", "B", "C"), own, DatasetSettings(), "")
    depth = replace(THOROUGH if thorough else FAST, cuts=0, starts=0)
    found = examine_features(pipeline_stages(own, evidence.settings), evidence, depth=depth)
    return {name: sorted(sorts) for name, sorts in found.faults.items()}


def test_what_counts_as_untouched_is_bit_by_bit_and_the_rest_is_not(bars: pl.DataFrame) -> None:
    for some in islands(bars, (_feature(C), _feature(C, bars=30)), effort=0.5):
        same_N = pl.Series(some.bars_N > 0)
        assert bit_faults(bars.filter(same_N), some.bars.filter(same_N), VALUES) == {}
        assert (bars.filter(~same_N)["close"] != some.bars.filter(~same_N)["close"]).all()
        sound = pl.col("low") <= pl.min_horizontal("open", "close")
        assert some.bars.select((sound & (pl.col("high") >= pl.max_horizontal("open", "close"))).all()).item()


def test_bars_and_sessions_of_an_island_are_counted(bars: pl.DataFrame) -> None:
    """The same numbers by counting row after row."""
    days = bars["ts"].dt.date().to_list()  # of XNYS, a session lies in one day of UTC
    symbols, count = bars["symbol"].to_list(), 0
    some: Islands
    for some in islands(bars, (_feature(C, bars=100),), effort=0.2):
        run = begun = 0
        for row, kept in enumerate(some.bars_N > 0):
            other = row == 0 or symbols[row] != symbols[row - 1]
            run, begun = (0, 0) if other or not kept else (run, begun)
            if kept:
                run, begun = run + 1, begun + (other or days[row] != days[row - 1])
            assert (some.bars_N[row], some.sessions_N[row]) == (run, begun)
        count += 1
    assert count == round(0.2 * 0.12 * 144)


def test_every_row_comes_to_lie_at_an_end_of_a_short_island(bars: pl.DataFrame) -> None:
    ends_N = np.zeros(bars.height, dtype=np.bool_)
    for some in islands(bars, (_feature(C),), effort=1.0):
        gone_N = some.bars_N == 0
        ends_N[:-1] |= ~gone_N[:-1] & gone_N[1:]
    assert (~ends_N).sum() <= 3  # the newest bar of each symbol: nothing comes after it


@pytest.mark.parametrize(
    "where",
    [
        pl.col("bar") == 3,
        pl.col("session") == pl.date(2026, 6, 17),
        (pl.col("session") == pl.date(2026, 6, 24)) & (pl.col("symbol") == "B"),
        pl.col("volume") == 0.0,
    ],
    ids=["one bar of a session", "one day", "one day of one symbol", "zero volume"],
)
def test_a_look_ahead_at_some_places_alone_is_found(bars: pl.DataFrame, where: pl.Expr) -> None:
    leak = _feature(pl.when(where).then(AHEAD).otherwise(BACK))
    assert _faults(bars, leak, thorough=True) == {"own__x": ["islands"]}


def test_a_lookback_that_is_too_short_at_some_places_alone_is_found(bars: pl.DataFrame) -> None:
    longer = pl.when(pl.col("bar") == 40).then(C / C.rolling_mean(30)).otherwise(BACK)
    assert _faults(bars, _feature(longer, bars=20)) == {"own__x": ["islands"]}
    assert _faults(bars, _feature(longer, bars=30)) == {}


def test_sound_features_raise_no_alarm(bars: pl.DataFrame) -> None:
    session = C / C.first().over("session") - 1.0
    slow = C / C.ewm_mean(span=20, adjust=False) - 1.0
    sound = {"own__back": (BACK, 2, 0), "own__session": (session, 78, 0), "own__slow": (slow, 200, 0)}
    sound |= {"own__two": (C / C.rolling_mean(100), 100, 1)}
    features = (_feature(one, name=name, bars=near, sessions=far) for name, (one, near, far) in sound.items())
    assert _faults(bars, *features, thorough=True) == {}
