"""In: names to leave out of the built-in features. Out: those that are none are refused as the file is read."""

from __future__ import annotations

import pytest

from klinepred.config import load_pipeline
from klinepred.errors import ConfigError
from klinepred.features.build import F50
from klinepred.formula.builtin import BUILT_IN


def _fault(exclude: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_pipeline("demo", overrides=[f"features.exclude={exclude}"])
    return caught.value


@pytest.mark.parametrize(
    ("exclude", "got", "do"),
    [
        ('["trend__rsi_41"]', "'trend__rsi_41', which is neither", "did you mean trend__rsi_14?"),
        ('["cross", "volumes"]', "'volumes', which is neither", "did you mean volume?"),
        ('["custom__mine"]', "'custom__mine', which is neither", "see `klinepred features list`"),
    ],
)
def test_leaving_out_what_is_not_there_is_refused_when_the_file_is_read(exclude: str, got: str, do: str) -> None:
    error = _fault(exclude)
    assert error.summary.startswith("pipeline demo: features.exclude: ")
    assert error.got == got
    assert error.do.startswith(do)


def test_features_and_families_that_are_there_may_be_left_out() -> None:
    assert F50.names == BUILT_IN
    run = load_pipeline("demo", overrides=['features.exclude=["cross", "trend__rsi_14"]'])
    assert run.features.exclude == ("cross", "trend__rsi_14")
