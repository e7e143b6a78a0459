"""In: features of the user's own, sound and leaking. Out: audited like the built-in ones, through both doors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from klinepred.audit.certify import certify
from klinepred.audit.depth import FAST
from klinepred.audit.stages import pipeline_stages
from klinepred.features.custom import features_for
from klinepred.settings import FeatureSettings
from tests.audit.clean import clean_pipeline
from tests.features.formulas import ALL
from tests.features.packages import install

SOUND = {feature.name: feature.formula for feature in ALL.features}
OTHERS = ("trend", "volatility", "volume", "clock", "cross")
LEAKS = {
    "tomorrow": "C.shift(-1) / C - 1.0, 1, 1",
    "centred": "C / C.rolling_mean(5, center=True) - 1.0, 5, 5",
    "whole_mean": "C / C.mean() - 1.0, 1, 1",
    "whole_rank": "C.rank(), 1, 1",
    "last": "C / C.last() - 1.0, 1, 1",
    "reversed": "C.reverse().rolling_mean(5).reverse() / C, 5, 5",
    "back_filled": 'pl.when(pl.col("bar") == 20).then(C).backward_fill() / C, 1, 1',
    "session_high": 'C / pl.col("high").max().over("session"), 1, 1',
    "since_the_start": 'pl.col("volume").cum_sum() / pl.col("volume"), 1, 100',
    "short_lookback": "C / C.ewm_mean(span=200, adjust=False) - 1.0, 1, 20",
    "hidden_in_python": "C.map_batches(lambda s: s / s.shift(-1), return_dtype=pl.Float64), 1, 1",
}
PACKAGE = """
import polars as pl
from klinepred.features.spec import Feature

C = pl.col("close")

def feature(name, expression, first, lookback):
    return Feature("acme__" + name, "a formula", expression, first, lookback, "made for tests")

def features():
    return [
        feature("sound", C / C.shift(2) - 1.0, 3, 3),
LEAKS
    ]
"""


def _judged(settings: FeatureSettings) -> dict[str, bool]:
    own = features_for(settings)
    evidence = replace(clean_pipeline(7), features=own)
    certificate = certify(pipeline_stages(own, evidence.settings), evidence, depth=FAST)
    checks = {check.name: check.passed for check in certificate.checks}
    assert set(own.names) <= set(checks)
    return checks


def test_sound_features_in_sql_raise_no_alarm() -> None:
    checks = _judged(FeatureSettings(exclude=OTHERS, custom=SOUND))
    assert [name for name, passed in checks.items() if not passed] == []


def test_leaks_that_come_in_with_a_package_are_caught_by_name_and_its_sound_feature_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f'        feature("{name}", {arguments}),' for name, arguments in LEAKS.items()]
    install(tmp_path, monkeypatch, code=PACKAGE.replace("LEAKS", "\n".join(lines)))
    checks = _judged(FeatureSettings(exclude=OTHERS, plugins=("tilt",)))
    assert [name for name in LEAKS if checks[f"acme__{name}"]] == []
    assert checks["acme__sound"]
    assert all(passed for name, passed in checks.items() if name.startswith("price__"))
