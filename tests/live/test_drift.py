"""In: a market that goes on as it was, and one that does not. Out: whether `measure` says so."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

import klinepred as kp
from klinepred.errors import StoreError
from klinepred.evaluation.significance import Estimate
from klinepred.live import drift
from klinepred.live.drift import measure
from klinepred.model.bundle import ModelBundle
from tests.bars.made import utc
from tests.live.market import END, SPLIT, doubled, open_market, simulated

RUN = kp.load_pipeline("demo")
CUT = utc("2026-04-13T00:00")


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> tuple[kp.Workspace, ModelBundle]:
    return open_market(tmp_path_factory.mktemp("market"), simulated())


def test_a_market_that_goes_on_as_it_was_has_not_drifted(market: tuple[kp.Workspace, ModelBundle]) -> None:
    space, bundle = market
    found = measure(space, RUN, bundle, now=utc(END))
    assert not found.drifted
    assert found.sentence.startswith("No need to retrain: in the ")
    assert found.sessions is not None
    assert found.sessions[1] == date(2026, 4, 30)
    assert found.compared == found.reference // 4
    names = found.table["name"].to_list()
    assert "prediction" in names
    assert not [name for name in names if name.startswith("clock__")]
    assert len(names) == 1 + sum(feature.family != "clock" for feature in kp.F50.features)


def test_the_kept_features_of_the_store_give_the_same_answer(market: tuple[kp.Workspace, ModelBundle]) -> None:
    space, bundle = market
    afresh, kept = measure(space, RUN, bundle, now=utc(END)), measure(space, RUN, bundle)
    assert kept.sentence == afresh.sentence


def test_a_session_that_is_not_over_does_not_count(market: tuple[kp.Workspace, ModelBundle]) -> None:
    space, bundle = market
    assert measure(space, RUN, bundle, now=utc("2026-04-30T19:59")).sessions[1] == date(2026, 4, 29)  # type: ignore[index]
    assert measure(space, RUN, bundle, now=utc("2026-04-30T20:00")).sessions[1] == date(2026, 4, 30)  # type: ignore[index]


def test_sessions_since_a_moment_are_those_asked_for(market: tuple[kp.Workspace, ModelBundle]) -> None:
    space, bundle = market
    found = measure(space, RUN, bundle, now=utc(END), since=utc("2026-04-28T00:00"))
    assert (found.sessions, found.compared) == ((date(2026, 4, 28), date(2026, 4, 30)), 3)


def test_two_sessions_after_training_are_too_few_to_say(market: tuple[kp.Workspace, ModelBundle]) -> None:
    space, bundle = market
    found = measure(space, RUN, bundle, now=utc("2026-04-14T21:00"))
    assert not found.drifted
    assert found.sentence == (
        f"Too early to say whether {bundle.name} has drifted: 2 finished sessions since its training, 3 are needed."
    )
    assert found.to_dict()["columns"] == []


def test_a_moment_before_the_first_bar_is_told(market: tuple[kp.Workspace, ModelBundle]) -> None:
    with pytest.raises(StoreError, match="some that had finished by 2020-01-01T00:00:00Z"):
        measure(market[0], RUN, market[1], now=utc("2020-01-01T00:00"))


def test_a_training_span_that_is_no_longer_stored_is_said(market: tuple[kp.Workspace, ModelBundle]) -> None:
    space, bundle = market
    gone = replace(bundle, split=replace(SPLIT, train_start=date(2026, 4, 6)))
    found = measure(space, RUN, gone, now=utc(END))
    assert "sessions of its training span in the store, 12 are needed" in found.sentence


def test_twice_the_volatility_is_drift(tmp_path: Path) -> None:
    space, bundle = open_market(tmp_path, doubled(simulated(), since=CUT))
    found = measure(space, RUN, bundle, now=utc(END))
    assert found.drifted
    assert found.sentence.startswith("Retrain now (klinepred train -p demo): ")
    assert found.table.row(0, named=True)["name"] == "volatility__realised_78"


@pytest.mark.parametrize(
    ("live", "fell"),
    [
        (Estimate(0.00, 0.01, 20), True),  # 3.6 errors below
        (Estimate(0.05, 0.01, 20), False),
        (Estimate(0.00, 0.05, 20), False),  # within its error
        (Estimate(0.00, 0.01, 9), False),  # too few sessions
        (Estimate(float("nan"), float("nan"), 20), False),
    ],
)
def test_a_live_ic_below_the_test_part_beyond_noise_is_a_reason_to_retrain(
    market: tuple[kp.Workspace, ModelBundle], monkeypatch: pytest.MonkeyPatch, live: Estimate, fell: bool
) -> None:
    space, bundle = market
    monkeypatch.setattr(drift, "_live_ic", lambda space, bundle, *, now: live)
    monkeypatch.setattr(drift, "_test_ic", lambda space, bundle: Estimate(0.06, 0.013, 0))
    found = measure(space, RUN, bundle, now=utc("2026-04-14T21:00"))  # the features have no say yet
    assert found.drifted is fell
    assert ("live IC 0.000 ± 0.010 is below the test part's 0.060 ± 0.013" in found.sentence) is fell
