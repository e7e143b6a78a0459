"""In: names from any market. Out: names MLflow takes, and back without a collision."""

from __future__ import annotations

import posixpath
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klinepred.training.metric_names import clean_name, original_name


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("mae/^GSPC", "mae/_x5e_GSPC"),
        ("mae/EURUSD=X", "mae/EURUSD_x3d_X"),
        ("val_loss", "val_loss"),
        ("max_x", "max_x5f_x"),
        ("a//..", "a/_x_/_x2e__x2e_"),
        ("..0", "_x2e_.0"),
        ("BTC/USD", "BTC/USD"),
    ],
)
def test_names_are_cleaned_by_the_stated_rule(name: str, want: str) -> None:
    assert clean_name(name) == want


@given(st.text(min_size=1) | st.text(alphabet="_x5e^/.", min_size=1))
def test_cleaning_is_reversible_and_passes_mlflows_rules(name: str) -> None:
    cleaned = clean_name(name)
    assert original_name(cleaned) == name
    assert re.fullmatch(r"[/\w.\- ]+", cleaned, re.ASCII)
    assert posixpath.normpath(cleaned) == cleaned
    assert not cleaned.startswith(("/", ".."))
