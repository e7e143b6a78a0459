"""In: bundles of models with features of the user's own. Out: the same set again, or why not, by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from klinepred.errors import ModelError
from klinepred.features.build import F50
from klinepred.features.custom import features_for
from klinepred.features.recipe import Plugin, Recipe
from klinepred.features.spec import FeatureSet
from klinepred.model.bundle import TABLE, ModelBundle, features_of, load_bundle, save_bundle, sealed
from klinepred.settings import FeatureSettings
from tests.features.packages import install
from tests.model.bundles import small_bundle

OWN = FeatureSettings(
    exclude=("cross",),
    custom={"custom__lag": "close/LAG(close,3) - 1 -- by bars", "custom__spread_3": "(high - low) / close"},
)


def _bundle(features: FeatureSet) -> ModelBundle:
    own: dict[str, Any] = {
        "feature_set": features.name,
        "fingerprint": features.fingerprint,
        "recipe": features.recipe,
        "marks": features.marks,
    }
    return replace(small_bundle(features=features.names), **own)


def _rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> ModelBundle:
    table = json.loads((folder / TABLE).read_text())
    change(table["features"])
    (folder / TABLE).write_text(json.dumps(sealed(table)))
    return load_bundle(folder)


def test_a_bundle_carries_the_formulas_and_gives_the_same_set_again(tmp_path: Path) -> None:
    own = features_for(OWN)
    folder = save_bundle(_bundle(own), tmp_path / "m")
    kept = json.loads((folder / TABLE).read_text())["features"]["recipe"]
    assert kept["custom"] == [
        {"name": "custom__lag", "sql": "close / LAG(close, 3) OVER (ORDER BY ts) - 1"},
        {"name": "custom__spread_3", "sql": "(high - low) / close"},
    ]
    again = features_of(load_bundle(folder))
    assert again.names == own.names
    assert again.fingerprint == own.fingerprint
    assert again.recipe == own.recipe


def test_a_bundle_from_before_there_were_own_features_is_still_read(tmp_path: Path) -> None:
    folder = save_bundle(_bundle(F50), tmp_path / "m")
    old = _rewrite(folder, lambda features: [features.pop(name) for name in ("recipe", "marks")])
    assert features_of(old) is F50
    assert (old.recipe, old.marks) == (None, {})


@pytest.mark.parametrize("recipe", [3, {}, {"base": "f50", "exclude": [], "custom": 3, "plugins": []}, None])
def test_a_recipe_that_is_damaged_is_refused(tmp_path: Path, recipe: object) -> None:
    folder = save_bundle(_bundle(F50), tmp_path / "m")
    with pytest.raises(ModelError, match="does not fit"):
        _rewrite(folder, lambda features: features.update(recipe=recipe))


@pytest.mark.parametrize(
    ("trained", "told"),
    [
        (FeatureSet("f50", F50.features[:-1]), f"with {F50.names[-1]}"),
        (FeatureSet("f50", (*F50.features, *features_for(OWN).features[-1:])), "without custom__spread_3"),
        (FeatureSet("f50", (*F50.features[:20], replace(F50.features[20], formula="x"), *F50.features[21:])),
         f"with other formulas for {F50.names[20]}"),
        (FeatureSet("f50", F50.features[::-1]), "in another order"),
    ],
    ids=["49", "51", "changed", "order"],
)  # fmt: skip
def test_a_model_of_other_features_is_refused_with_their_names(trained: FeatureSet, told: str) -> None:
    with pytest.raises(ModelError) as caught:
        features_of(_bundle(trained))
    assert caught.value.got.endswith(told)
    assert trained.fingerprint in caught.value.expected


def test_an_old_model_tells_at_least_what_is_missing() -> None:
    with pytest.raises(ModelError) as caught:
        features_of(replace(_bundle(FeatureSet("f50", F50.features[:-2])), marks={}))
    assert caught.value.got.endswith(f"with {', '.join(F50.names[-2:])}")


def test_a_formula_that_this_version_cannot_read_is_refused_with_its_name() -> None:
    recipe = Recipe("f50", custom=(("custom__a", "TANH(close)"),))
    with pytest.raises(ModelError, match=r"custom__a") as caught:
        features_of(replace(_bundle(F50), recipe=recipe))
    assert "TANH" in caught.value.got


def test_a_package_that_is_gone_or_of_another_version_is_refused_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "one", monkeypatch)
    bundle = _bundle(features_for(FeatureSettings(plugins=("tilt",))))
    assert bundle.recipe is not None
    (plugin,) = bundle.recipe.plugins
    assert plugin == Plugin("tilt", "tilt-pack", "1.2", plugin.code)
    folder = save_bundle(bundle, tmp_path / "m")
    assert features_of(load_bundle(folder)).fingerprint == bundle.fingerprint
    monkeypatch.undo()
    with pytest.raises(ModelError, match=r"features\.plugins: tilt") as gone:
        features_of(load_bundle(folder))
    assert "tilt-pack 1.2" in gone.value.do
    install(tmp_path / "two", monkeypatch, version="2.0")
    with pytest.raises(ModelError) as newer:
        features_of(load_bundle(folder))
    assert newer.value.expected == plugin.origin
    assert newer.value.got.startswith("tilt-pack 2.0")
    assert "pip install tilt-pack==1.2" in newer.value.do
