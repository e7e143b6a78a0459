"""In: the registry. Out: fifty features in six families, well named, each with its reach, and a fingerprint."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from klinepred.features.build import F50, FEATURE_SETS
from klinepred.features.catalogue import FAMILIES, catalogue, page
from klinepred.features.spec import Feature, FeatureSet

PAGE = Path(__file__).parents[2] / "docs" / "features.md"


def test_there_are_fifty_of_six_families_in_the_order_of_the_families() -> None:
    assert len(F50.features) == 50
    counts = Counter(feature.family for feature in F50.features)
    assert counts == {"price": 12, "trend": 12, "volatility": 9, "volume": 8, "clock": 5, "cross": 4}
    assert [*counts] == [*FAMILIES]


def test_names_are_unique_and_follow_the_grammar() -> None:
    assert len(set(F50.names)) == 50
    for name in F50.names:
        assert re.fullmatch(r"[a-z]+__[a-z0-9]+(_[a-z0-9]+)*", name), name


def test_each_says_what_it_is_from_when_it_is_shown_and_how_far_it_looks_back() -> None:
    for feature in F50.features:
        assert feature.formula, feature.name
        assert feature.source, feature.name
        assert feature.first_value >= 1, feature.name
        # whoever waits for the lookback finds the feature shown
        assert feature.lookback_bars >= feature.first_value or feature.lookback_sessions, feature.name


def test_sets_are_found_by_their_names() -> None:
    assert FEATURE_SETS == {"f50": F50}


def _with(change: Callable[[Feature], Feature], number: int = 17) -> FeatureSet:
    features = list(F50.features)
    features[number] = change(features[number])
    return FeatureSet(F50.name, tuple(features))


@pytest.mark.parametrize(
    "other",
    [
        _with(lambda one: replace(one, formula=one.formula + " ")),
        _with(lambda one: replace(one, first_value=one.first_value + 1)),
        _with(lambda one: replace(one, lookback_bars=one.lookback_bars + 1)),
        _with(lambda one: replace(one, lookback_sessions=one.lookback_sessions + 1)),
        _with(lambda one: replace(one, revision=one.revision + 1)),
        _with(lambda one: replace(one, name="trend__other")),
        FeatureSet("f50", (F50.features[1], F50.features[0], *F50.features[2:])),
        FeatureSet("f50", F50.features[:-1]),
    ],
    ids=["formula", "first value", "bars", "sessions", "revision", "name", "order", "one less"],
)
def test_the_fingerprint_changes_with_every_part_and_with_the_order(other: FeatureSet) -> None:
    assert re.fullmatch("[0-9a-f]{16}", F50.fingerprint)
    assert other.fingerprint != F50.fingerprint


def test_the_fingerprint_is_not_of_the_name_of_the_set_nor_of_a_source() -> None:
    renamed = FeatureSet("mine", tuple(replace(one, source="") for one in F50.features))
    assert renamed.fingerprint == F50.fingerprint


def test_the_page_of_the_docs_is_the_catalogue() -> None:
    assert PAGE.read_text() == page(F50)


def test_the_catalogue_has_a_row_for_each_feature() -> None:
    rows = catalogue(F50)
    assert rows["name"].to_list() == list(F50.names)
    assert all(f"`{name}`" in page(F50) for name in F50.names)
