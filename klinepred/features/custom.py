"""In: the features section of a pipeline, or a recipe kept in a bundle. Out: the `FeatureSet` it stands for."""

from __future__ import annotations

from typing import Final

from klinepred.errors import ConfigError, FeatureError
from klinepred.features.build import FEATURE_SETS
from klinepred.features.plugins import load_plugin
from klinepred.features.recipe import Plugin, Recipe
from klinepred.features.spec import Feature, FeatureSet
from klinepred.features.translate import expression_of
from klinepred.formula.builtin import check_excluded
from klinepred.formula.names import check_name
from klinepred.formula.tree import reach, text_of
from klinepred.settings import FeatureSettings

SOURCE: Final = "features.custom of the pipeline"


def features_for(settings: FeatureSettings) -> FeatureSet:
    """The set of a pipeline: the built-in one without `exclude`, then `custom` in SQL, then those of `plugins`.

    Raises
    ------
    ConfigError
        A name or formula is not valid, or `exclude` names what is not there.
    FeatureError
        A plugin is absent, fails, or gives what is no feature.
    """
    return assemble(recipe_of(settings))


def recipe_of(settings: FeatureSettings) -> Recipe:
    """The recipe a pipeline gives.

    Raises
    ------
    ConfigError
        A formula is none.
    """
    if settings.custom:
        from klinepred.formula.parse import parse_formula  # with sqlglot, which takes a moment
    return Recipe(
        base=settings.set,
        exclude=settings.exclude,
        custom=tuple(
            (name, text_of(parse_formula(text, where=f"features.custom.{name}")))
            for name, text in settings.custom.items()
        ),
        plugins=tuple(Plugin(name) for name in settings.plugins),
    )


def assemble(recipe: Recipe) -> FeatureSet:
    """Put a set together; plugins that name a version must be of that version. Errors as `features_for`."""
    base = FEATURE_SETS.get(recipe.base)
    if base is None:
        raise FeatureError(
            f"feature set {recipe.base!r}",
            expected=f"one of: {', '.join(FEATURE_SETS)}",
            got="no such set in this version of klinepred",
            do="use the version it was made with",
        )
    if recipe == Recipe(recipe.base):
        return base
    kept = _without(base, recipe.exclude)
    loaded = [load_plugin(plugin) for plugin in recipe.plugins]
    added = (
        *(sql_feature(name, text) for name, text in recipe.custom),
        *(feature for _, features in loaded for feature in features),
    )
    _refuse_doubles(added)
    if not kept and not added:
        raise ConfigError(
            "features.exclude", expected="at least one feature to be left", got="none", do="exclude fewer, or add some"
        )
    dropped = len(base.features) - len(kept)
    name = base.name + (f"+{len(added)}" if added else "") + (f"-{dropped}" if dropped else "")
    made = Recipe(recipe.base, recipe.exclude, recipe.custom, tuple(plugin for plugin, _ in loaded))
    return FeatureSet(name, (*kept, *added), made)


def sql_feature(name: str, text: str) -> Feature:
    """A feature from its SQL; it is shown once all the bars it may read are there.

    Raises
    ------
    ConfigError
        The name or the formula is not valid.
    """
    from klinepred.formula.parse import parse_formula  # with sqlglot, which takes a moment

    check_name(name, where="features.custom")
    node = parse_formula(text, where=f"features.custom.{name}")
    bars = reach(node) + 1
    return Feature(name, text_of(node), expression_of(node), first_value=bars, lookback_bars=bars, source=SOURCE)


def _without(base: FeatureSet, exclude: tuple[str, ...]) -> tuple[Feature, ...]:
    check_excluded(exclude, where="features.exclude")
    return tuple(one for one in base.features if one.name not in exclude and one.family not in exclude)


def _refuse_doubles(added: tuple[Feature, ...]) -> None:
    seen: dict[str, str] = {}
    for feature in added:
        origin = feature.origin or SOURCE
        if feature.name in seen:
            raise FeatureError(
                f"feature {feature.name}",
                expected="each name once",
                got=f"one from {seen[feature.name]} and one from {origin}",
                do="rename or remove one",
            )
        seen[feature.name] = origin
