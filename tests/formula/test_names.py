"""In: names for features. Out: family__what_param with a family of the user's own, else one message."""

from __future__ import annotations

import pytest

from klinepred.errors import ConfigError
from klinepred.features.build import F50
from klinepred.features.catalogue import FAMILIES as HEADINGS
from klinepred.formula.names import FAMILIES, NAME, check_name


@pytest.mark.parametrize("name", ["custom__spread_3", "mine2__a", "custom__12_26_9", "x__" + "a" * 61])
def test_a_name_by_the_grammar_is_taken(name: str) -> None:
    check_name(name, where="features.custom")


@pytest.mark.parametrize(
    "name",
    [
        *("", "spread", "custom_spread", "Custom__spread", "custom__Spread", "custom__", "__spread", "custom__a__b"),
        *("custom__a_", "custom__a-b", "custom__a.b", "custom __a", "1custom__a", "custom__é"),
        *("x__" + "a" * 62, "a" * 999),
        *("price__mine", "cross__mine", "clock__x"),
    ],
)  # fmt: skip
def test_any_other_is_refused_with_one_that_would_do(name: str) -> None:
    with pytest.raises(ConfigError, match=r"features\.custom") as caught:
        check_name(name, where="features.custom")
    offered = caught.value.do.removeprefix("rename it, to ").removesuffix(" say").rstrip(",")
    check_name(offered, where="the offer")


def test_the_built_in_families_are_those_of_the_registry() -> None:
    assert tuple(dict.fromkeys(feature.family for feature in F50.features)) == FAMILIES
    assert tuple(HEADINGS) == FAMILIES
    assert all(NAME.fullmatch(name) for name in F50.names)
