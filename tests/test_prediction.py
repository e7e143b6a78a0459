"""In: odd moments, odd symbols, odd bars. Out: the right row with the right remark, or the right refusal."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import klinepred as kp
from klinepred.dataset.make import make_dataset
from klinepred.errors import DatasetError, ModelError
from klinepred.features import custom
from klinepred.features.spec import FeatureSet
from klinepred.model.bundle import ModelBundle
from klinepred.model.novelty import fit_novelty
from klinepred.prediction import forecast
from klinepred.schema import Bars
from tests.asked import asked_bundle, walked
from tests.bars.made import utc

CLOCKS = dict.fromkeys(("AAA", "BBB", "CCC", "DDD", "EEE", "FFF"), "XNYS")
CROSS = "cross__market_1, cross__relative_1, cross__rank_12, cross__beta_78"


@pytest.fixture(scope="module")
def bars() -> Bars:
    return walked(CLOCKS)


@pytest.fixture(scope="module")
def bundle() -> ModelBundle:
    return asked_bundle(CLOCKS)


def before(bars: Bars, moment: str, *, symbols: str = "") -> Bars:
    """The bars that open before a moment, of the symbols that begin with one of the letters."""
    kept = bars.filter(pl.col("ts") < utc(moment))
    return Bars(kept.filter(pl.col("symbol").str.slice(0, 1).is_in(list(symbols))) if symbols else kept)


# --- the clock -------------------------------------------------------------------------------------------------------


def test_only_finished_bars_are_used(bundle: ModelBundle, bars: Bars) -> None:
    for now, newest in (
        ("2026-06-03T15:04:59", "14:55"),
        ("2026-06-03T15:05:00", "15:00"),
        ("2026-06-03T15:09", "15:00"),
    ):
        rows = kp.predict(bundle, bars, symbols=["AAA"], now=utc(now))
        assert rows["bar_ts"].to_list() == [utc(f"2026-06-03T{newest}")], now
        assert rows["asof"].to_list() == [utc(f"2026-06-03T{newest}") + (utc("2026-01-01T00:05") - utc("2026-01-01"))]
        assert rows["stale"].to_list() == [False]


@pytest.mark.parametrize(
    ("clock", "last", "now", "note"),
    [
        ("XNYS", "2026-06-03T15:00", "2026-06-03T16:30", "stale: closed 85 min ago"),  # case 57
        ("24/7", "2026-06-03T15:00", "2026-06-03T16:30", "stale: closed 85 min ago"),
        ("XNYS", "2026-06-05T19:55", "2026-06-06T12:00", ""),  # Saturday: the newest there can be
        ("XNYS", "2026-06-05T19:55", "2026-06-08T13:34", ""),
        ("XNYS", "2026-06-05T19:55", "2026-06-08T13:35", "stale: closed 2 days ago"),  # Monday's first has closed
        ("XNYS", "2026-06-03T15:00", "2026-06-12T15:00", "stale: closed 8 days ago"),
        ("XNYS", "2026-06-03T15:00", "2026-06-04T15:06", "stale: closed 1 day ago"),
        ("XHKG", "2026-06-03T03:55", "2026-06-03T04:50", ""),  # lunch
    ],
)
def test_old_bars_are_flagged_with_their_age(clock: str, last: str, now: str, note: str) -> None:
    clocks = {"AAA": clock}
    kept = walked(clocks, start="2026-04-25", days=45).filter(pl.col("ts") <= utc(last))
    (row,) = kp.predict(asked_bundle(clocks), Bars(kept), now=utc(now)).to_dicts()
    assert row["bar_ts"] == utc(last)
    assert (row["stale"], row["note"]) == (bool(note), note)


@pytest.mark.parametrize(
    ("clock", "asof", "target"),
    [
        ("XNYS", "2026-11-20T21:00", "2026-11-23T14:30"),  # Friday 15:55 New York -> Monday 09:30
        ("XNYS", "2026-11-25T21:00", "2026-11-27T14:30"),  # over Thanksgiving
        ("XNYS", "2026-11-27T18:00", "2026-11-30T14:30"),  # a half day ends at 13:00
        ("XNYS", "2026-11-27T17:55", "2026-11-27T17:55"),  # its last bar but one
        ("XNYS", "2026-10-30T20:00", "2026-11-02T14:30"),  # clocks go back: 09:30 is an hour later in UTC
        ("XLON", "2026-10-23T15:30", "2026-10-26T08:00"),  # they do so a week earlier in London
        ("24/7", "2026-10-31T21:00", "2026-10-31T21:00"),
        ("24/7", "2026-11-01T00:00", "2026-11-01T00:00"),
        ("XHKG", "2026-11-20T04:00", "2026-11-20T05:00"),  # lunch
        ("XTKS", "2026-11-20T02:30", "2026-11-20T03:30"),
        ("XTKS", "2026-11-20T06:30", "2026-11-24T00:00"),  # Monday is Labour Thanksgiving Day
    ],
)
def test_the_predicted_bar_is_the_next_one_of_the_calendar(clock: str, asof: str, target: str) -> None:
    clocks = {"AAA": clock}
    start = (utc(asof) - (utc("2026-02-10") - utc("2026-01-01"))).date().isoformat()
    (row,) = kp.predict(asked_bundle(clocks), walked(clocks, start=start, days=50), as_of=utc(asof)).to_dicts()
    assert row["asof"] == utc(asof)
    assert row["target_ts"] == utc(target)
    assert not row["stale"]


# --- symbols ---------------------------------------------------------------------------------------------------------


def test_bad_symbols_are_named_with_their_reason_and_the_good_ones_come_out(bars: Bars) -> None:
    bundle = asked_bundle(dict.fromkeys(["AAA", "BBB", "CCC", "DDD", "EEE"], "XNYS"))
    late = pl.concat(
        [
            bars.filter(pl.col("symbol") != "BBB"),
            bars.filter(pl.col("symbol") == "BBB", pl.col("ts") > utc("2026-06-01")),
        ]
    )
    answer = forecast(bundle, Bars(late), symbols=["ZZZ", "FFF", "BBB", "AAA"], now=utc("2026-06-09T21:00"))
    assert answer.rows["symbol"].to_list() == ["AAA", "FFF"]
    assert answer.rows["note"].str.contains("not in training", literal=True).to_list() == [False, True]  # case 62
    assert list(answer.failures) == ["BBB", "ZZZ"]
    assert answer.failures["ZZZ"] == "no data for ZZZ finished by 2026-06-09T21:00:00Z"
    have, need = 7 * 78, kp.F50.lookback_bars
    assert answer.failures["BBB"] == (
        f"too little history: have {have} bars and 6 finished sessions, need {need} and {kp.F50.lookback_sessions}"
    )
    with pytest.raises(DatasetError, match="at least one symbol") as raised:
        forecast(bundle, Bars(late), symbols=["BBB", "ZZZ"], now=utc("2026-06-09T21:00"))
    assert "have 546 bars" in raised.value.got
    assert "no data for ZZZ" in raised.value.got


def test_a_symbol_of_longer_days_than_the_universe_s_gets_all_the_bars_it_needs(
    bars: Bars, bundle: ModelBundle
) -> None:
    coin = walked({"XBT": "24/7"}, days=50)
    both = Bars(pl.concat([bars.collect(), coin.collect()]).sort("symbol", "ts").lazy())
    answer = forecast(bundle, both, symbols=["XBT"], as_of=utc("2026-06-06T12:00"))
    assert answer.failures == {}
    (row,) = answer.rows.to_dicts()
    assert row["target_ts"] == utc("2026-06-06T12:00")  # Saturday
    assert row["note"].startswith(f"not in training; 6 of 6 universe symbols absent: {CROSS} neutral")


def test_windows_that_a_gap_breaks_are_refused_with_their_length(bars: Bars) -> None:
    bundle = asked_bundle(CLOCKS, cut="window", window=24)
    gone = bars.filter(~((pl.col("symbol") == "AAA") & (pl.col("ts") == utc("2026-06-09T19:00"))))
    answer = forecast(bundle, Bars(gone), symbols=["AAA", "BBB"], now=utc("2026-06-09T20:00"))
    assert answer.rows["symbol"].to_list() == ["BBB"]
    assert answer.failures == {"AAA": "too little history: no unbroken sequence of 24 bars ends at its newest bar"}


# --- the universe ----------------------------------------------------------------------------------------------------


def test_an_incomplete_universe_is_named_with_the_features_it_touches(
    bars: Bars, bundle: ModelBundle, caplog: pytest.LogCaptureFixture
) -> None:
    now = utc("2026-06-09T21:00")
    whole = kp.predict(bundle, bars, now=now)
    assert set(whole["note"]) == {""}
    with caplog.at_level(logging.WARNING, logger="klinepred"):
        some = kp.predict(bundle, before(bars, "2027-01-01", symbols="ABCDE"), now=now)
    assert set(some["note"]) == {f"1 of 6 universe symbols absent: {CROSS} taken over the other 5"}
    assert "no bars of 1 symbols of the model's universe: FFF" in caplog.text
    few = kp.predict(bundle, before(bars, "2027-01-01", symbols="ABCD"), now=now)
    assert set(few["note"]) == {f"2 of 6 universe symbols absent: {CROSS} neutral, 5 symbols are needed"}


def test_a_member_that_stopped_earlier_is_absent_from_later_rows_alone(bars: Bars, bundle: ModelBundle) -> None:
    stopped = Bars(bars.filter((pl.col("symbol") != "FFF") | (pl.col("ts") < utc("2026-06-09T15:00"))))
    span = (utc("2026-06-09T14:50"), utc("2026-06-09T15:10"))
    rows = forecast(bundle, stopped, symbols=["AAA"], span=span, now=utc("2026-06-09T21:00")).rows
    assert [bool(note) for note in rows["note"]] == [False, False, True, True]
    newest = kp.predict(bundle, stopped, now=utc("2026-06-09T21:00"))
    assert newest.filter(pl.col("symbol") == "FFF")["note"].to_list() == ["stale: closed 360 min ago"]
    assert "1 of 6 universe symbols absent" in newest["note"][0]


def test_a_universe_too_small_for_a_cross_section_says_how_many_are_absent_and_no_more(bars: Bars) -> None:
    bundle = asked_bundle({"AAA": "XNYS", "BBB": "XNYS"})
    (row,) = kp.predict(bundle, before(bars, "2027-01-01", symbols="A"), now=utc("2026-06-09T21:00")).to_dicts()
    assert row["note"] == "1 of 2 universe symbols absent"  # its cross-section was neutral in training, too


# --- features --------------------------------------------------------------------------------------------------------


def swapped() -> FeatureSet:
    first, second, *others = kp.F50.features
    return FeatureSet("f50", (second, first, *others))


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (swapped(), "in another order"),
        (FeatureSet("f50", kp.F50.features[1:]), f"without {kp.F50.names[0]}"),
    ],
)
def test_features_in_another_order_or_one_missing_are_refused_by_name(
    bundle: ModelBundle, bars: Bars, monkeypatch: pytest.MonkeyPatch, features: FeatureSet, words: str
) -> None:
    """Case 58, (i) and (ii): what this version computes is not what the model was trained on."""
    monkeypatch.setattr(custom, "FEATURE_SETS", {"f50": features})
    with pytest.raises(ModelError, match=words) as raised:
        kp.predict(bundle, bars)
    assert raised.value.expected == f"feature set 'f50' with fingerprint {kp.F50.fingerprint}"
    assert features.fingerprint in raised.value.got


def test_a_model_is_fed_by_name_whatever_the_order_of_columns(bundle: ModelBundle, bars: Bars) -> None:
    table = kp.build_features(before(bars, "2026-05-30"), universe=bundle.universe).frame
    shuffled = table.select(reversed(table.columns))
    assert (bundle.scaler.apply(table) == bundle.scaler.apply(shuffled)).all()
    with pytest.raises(ModelError, match="features of the model") as raised:
        bundle.scaler.apply(table.drop("trend__rsi_14" if "trend__rsi_14" in table.columns else table.columns[5]))
    assert raised.value.exit_code == 1


# --- rows unlike those of training -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wary(bundle: ModelBundle, bars: Bars) -> ModelBundle:
    """A model that knows how far rows lie from those before June."""
    table = kp.build_features(bars, universe=bundle.universe)
    data = make_dataset(table, bundle.dataset, split=bundle.split)
    early_N = data.rows.select(pl.col("ts") < utc("2026-06-01")).to_series().to_numpy()
    even_N = np.arange(early_N.size) % 2 == 0
    novelty = fit_novelty(data.x_NF, train_N=early_N & even_N, validation_N=early_N & ~even_N)
    return replace(bundle, scaler=data.scaler, novelty=novelty)


def test_a_model_abstains_from_a_row_unlike_those_of_training(wary: ModelBundle, bars: Bars) -> None:
    now = utc("2026-06-09T18:00")
    calm = forecast(wary, bars, now=now)
    assert set(calm.rows["note"]) == {""}
    last = (pl.col("symbol") == "BBB") & (pl.col("ts") == utc("2026-06-09T17:55"))
    wild = bars.with_columns(  # a price that jumps by a fifth within one bar
        pl.when(last).then(pl.col(name) * 1.2).otherwise(pl.col(name)).alias(name) for name in ("high", "close")
    )
    answer = forecast(wary, Bars(wild), now=now)
    row, price = (frame.filter(pl.col("symbol") == "BBB").row(0, named=True) for frame in (answer.rows, answer.prices))
    assert [row[name] for name in ("expected_return_bps", "p_up", "lo80_bps", "hi80_bps")] == [None] * 4
    assert [price[name] for name in ("expected_close", "lo80_close", "hi80_close")] == [None] * 3
    assert wary.novelty is not None
    limit = f"{wary.novelty.threshold:.3g}"
    words = rf"abstains: out of distribution: score [\d.e+]+, threshold {limit}, most unusual: \w+__\w+"
    assert re.fullmatch(words, row["note"]), row["note"]
    others = answer.rows.filter(pl.col("symbol") != "BBB")
    assert others["expected_return_bps"].is_not_null().all()
    alone = forecast(wary, Bars(wild), symbols=["BBB"], now=now).rows
    assert alone.row(0) == answer.rows.filter(pl.col("symbol") == "BBB").row(0)


def test_abstaining_changes_no_other_row(wary: ModelBundle, bars: Bars) -> None:
    span = (utc("2026-06-02"), utc("2026-06-10"))
    with_it = forecast(wary, bars, span=span, now=utc("2026-06-10")).rows
    without = forecast(replace(wary, novelty=None), bars, span=span, now=utc("2026-06-10")).rows
    kept = with_it["expected_return_bps"].is_not_null()
    assert 0 < (~kept).sum() < 0.02 * len(kept)  # some: its threshold is set to be passed by one in a thousand
    assert with_it.filter(kept).equals(without.filter(kept))
    assert with_it.filter(~kept)["note"].str.starts_with("abstains: out of distribution").all()
