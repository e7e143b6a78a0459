"""In: packages that declare features. Out: their features when named, else one message that names the package."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from klinepred.errors import FeatureError
from klinepred.features.build import F50, build_features
from klinepred.features.custom import assemble, features_for
from klinepred.features.recipe import Plugin, Recipe
from klinepred.settings import FeatureSettings
from tests.features.frames import market
from tests.features.packages import TILT, install

NAMED = FeatureSettings(plugins=("tilt",))


def test_features_of_a_package_follow_the_built_in_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    own = features_for(FeatureSettings(plugins=("tilt", "range"), custom={"custom__a": "close"}))
    assert own.names == (*F50.names, "custom__a", "tilt__mean_4", "tilt__body", "tilt__range")
    assert own.recipe is not None
    code = own.recipe.plugins[0].code
    assert re.fullmatch("[0-9a-f]{8}", code)
    assert own.recipe.plugins == (Plugin("tilt", "tilt-pack", "1.2", code), Plugin("range", "tilt-pack", "1.2", code))
    bars = market("A", days=2)
    close = bars.get_column("close").to_list()
    found = build_features(bars, own).frame.get_column("tilt__mean_4").to_list()
    assert found[:3] == [None] * 3
    assert found[50] == pytest.approx(4.0 * close[50] / sum(close[47:51]) - 1.0, rel=1e-4)


def test_a_package_that_is_not_named_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, code="raise RuntimeError('loaded')")
    assert features_for(FeatureSettings()) is F50
    assert "tiltpack" not in sys.modules


def test_the_version_is_part_of_the_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "one", monkeypatch)
    one = features_for(NAMED)
    monkeypatch.undo()
    install(tmp_path / "two", monkeypatch, version="1.3")
    two = features_for(NAMED)
    assert one.names == two.names
    assert one.fingerprint != two.fingerprint
    assert {name for name in one.names if one.marks[name] != two.marks[name]} == {"tilt__mean_4", "tilt__body"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("syntax error here", "SyntaxError"),
        ("def other(): pass", "AttributeError"),
        ("def features(): raise KeyError('gone')", "KeyError: 'gone'"),
        ("def features(needed): return ()", "TypeError"),
        ("def features(): return 3", "int"),
        ("def features(): return ()", "none"),
        ("def features(): return ['tilt__a']", "str"),
        (TILT.replace("tilt__body", "price__body"), "built in"),
        (TILT.replace("tilt__body", "Body"), "'Body'"),
        (TILT.replace('"tilt__body"', "7"), "int"),
        (TILT.replace("c - o", "c\\n- o"), "formula 'c"),
        (TILT.replace('"c - o"', "''"), "formula ''"),
        (TILT.replace('pl.col("close") - pl.col("open"), 1, 1', "3, 1, 1"), "type int"),
        (TILT.replace('pl.col("open"), 1, 1', 'pl.col("open"), 0, 1'), "first_value 0"),
        (TILT.replace('pl.col("open"), 1, 1', 'pl.col("open"), 1, True'), "lookback_bars True"),
        (TILT.replace('pl.col("open"), 1, 1', 'pl.col("open"), 5, 4'), "lookback_bars 4"),
        (TILT.replace('pl.col("open"), 1', 'pl.col("_s"), 1'), "_s"),
        (TILT.replace('pl.col("open"), 1', 'pl.col("opened"), 1'), "opened"),
        (TILT.replace('pl.col("open"), 1', "pl.all(), 1"), "selector"),
        (TILT.replace('pl.col("open"), 1', 'pl.col("symbol"), 1'), "computing tilt__body"),
        (TILT.replace('pl.col("close") - pl.col("open"), 1', 'pl.col("symbol"), 1'), "String"),
        (TILT.replace('pl.col("close") - pl.col("open"), 1', 'pl.col("close").mean(), 1'), "1 of Float64 for 36"),
        (TILT.replace('pl.col("open"), 1', 'pl.col("open").map_batches(lambda s: 1 / 0, return_dtype=pl.Float64), 1'),
         "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_package_is_one_message_with_its_name_and_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, told: str
) -> None:
    install(tmp_path, monkeypatch, code=change)
    with pytest.raises(FeatureError) as caught:
        features_for(NAMED)
    text = str(caught.value)
    assert "tilt of tilt-pack 1.2" in text
    assert told in text
    assert re.search("expected: .+\n  got: .+\n  do this: .+", text)


def test_what_fails_on_real_bars_only_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = TILT.replace(
        'pl.col("close") - pl.col("open"), 1',
        'pl.col("close").map_batches(lambda s: s if len(s) < 50 else {}["big"], return_dtype=pl.Float64), 1',
    )
    install(tmp_path, monkeypatch, code=code)
    with pytest.raises(FeatureError, match=r"tilt-pack 1\.2") as caught:
        build_features(market("A", days=3), features_for(NAMED))
    assert "tilt__body" in caught.value.expected
    assert "KeyError" in caught.value.got


def test_an_unknown_name_gets_a_suggestion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    with pytest.raises(FeatureError, match=r"features\.plugins: tild") as caught:
        features_for(FeatureSettings(plugins=("tild",)))
    assert "did you mean tilt?" in caught.value.do
    assert "klinepred.features" in caught.value.expected


def test_two_packages_under_one_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "one", monkeypatch)
    install(tmp_path / "two", monkeypatch, name="other-pack", version="9")
    with pytest.raises(FeatureError) as caught:
        features_for(NAMED)
    assert "other-pack 9, tilt-pack 1.2" in caught.value.got


def test_one_package_twice_on_the_path_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "one", monkeypatch)
    install(tmp_path / "two", monkeypatch)
    assert "tilt__body" in features_for(NAMED).names


def test_a_name_used_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    with pytest.raises(FeatureError, match="tilt__body") as caught:
        features_for(FeatureSettings(plugins=("tilt",), custom={"tilt__body": "close"}))
    assert "tilt-pack 1.2" in caught.value.got


def test_a_recipe_with_a_version_takes_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    recipe = features_for(NAMED).recipe
    assert recipe is not None
    assert assemble(recipe).recipe == recipe
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    (good,) = recipe.plugins
    for wrong in (replace(good, version="1.1"), replace(good, distribution="tilted")):
        with pytest.raises(FeatureError) as caught:
            assemble(Recipe("f50", plugins=(wrong,)))
        assert caught.value.expected == wrong.origin
        assert caught.value.got == good.origin
        assert f"pip install {wrong.distribution}=={wrong.version}" in caught.value.do


def test_other_code_under_the_same_version_is_another_feature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    before = features_for(NAMED)
    assert before.recipe is not None
    install(tmp_path, monkeypatch, code=TILT.replace("rolling_mean(4)", "rolling_median(4)"))
    after = features_for(NAMED)
    assert after.names == before.names
    assert after.fingerprint != before.fingerprint
    with pytest.raises(FeatureError, match=r"features\.plugins: tilt") as caught:
        assemble(before.recipe)
    assert "put the files of tilt-pack back" in caught.value.do


def test_a_mask_and_the_bits_of_the_built_in_features_are_as_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch)
    bars = market("ABCDEF", days=3, still=0.1)
    own = build_features(bars, features_for(FeatureSettings(plugins=("tilt",), custom={"a__b": "1 / (high - low)"})))
    assert own.frame.select(F50.names).equals(build_features(bars).frame.select(F50.names))
    assert own.frame.get_column("a__b").drop_nulls().is_finite().all()
    flat = bars.filter(pl.col("high") == pl.col("low")).height
    assert own.frame.get_column("a__b").null_count() == flat > 0
