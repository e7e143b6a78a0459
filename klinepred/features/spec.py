"""In: an expression with its formula and reach. Out: `Feature`, and `FeatureSet`, an ordered set with a fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from klinepred.features.recipe import Recipe


@dataclass(frozen=True)
class Per:
    """An expression over those bars of one symbol that have one value of a column, for each of its values apart."""

    column: str
    expression: pl.Expr


Shared = tuple[dict[str, pl.Expr | Per], ...]
"""Columns that several expressions read, by name, made once; those of a level may read those of the levels before."""


def over(what: pl.Expr | Per, by: str | None) -> pl.Expr:
    """`what` as an expression over the bars of one symbol, or over those of many told apart by the column `by`."""
    expression, columns = (what.expression, [what.column]) if isinstance(what, Per) else (what, [])
    columns = columns if by is None else [by, *columns]
    return expression.over(columns) if columns else expression


@dataclass(frozen=True)
class Feature:
    """One number per bar, known at the close of that bar.

    Attributes
    ----------
    name
        `family__what_param`.
    formula
        In words and signs, one line; o, h, l, c, v are the bar's columns, r its one-bar log return within a stretch of
        trading, s the trailing volatility (root mean square of r over 78 bars).
    expression
        Polars expression over one symbol's bars in time order (columns of `klinepred.features.prepare`), or over the
        cross-section's columns for the family `cross`. What is not finite becomes null.
    first_value
        Bars of the symbol, its own included, from which on it is shown; before that it is null.
    lookback_bars, lookback_sessions
        From so many bars (own included) and so many whole sessions before on, older history no longer matters
        (|difference| <= 1e-6 of the value or the column's spread): usable for a model.
    source
        Paper, book or library.
    revision
        Raised whenever the numbers change; part of the fingerprint.
    seasonal
        Of earlier bars only those of the same place in their session matter, and where sessions begin.
    origin
        Distribution, version and code of the package that declares it; empty for klinepred's own and for SQL. Part of
        the fingerprint.
    """

    name: str
    formula: str
    expression: pl.Expr
    first_value: int
    lookback_bars: int
    source: str
    lookback_sessions: int = 0
    revision: int = 1
    origin: str = ""
    seasonal: bool = False

    @property
    def family(self) -> str:
        """The part of the name before the double underscore."""
        return self.name.partition("__")[0]

    @property
    def fingerprint(self) -> str:
        """16 hex digits over name, formula, reach, revision and origin."""
        return _digest(self._facts)

    @property
    def _facts(self) -> str:
        numbers = (self.first_value, self.lookback_bars, self.lookback_sessions, self.revision)
        return "|".join((self.name, self.formula, *map(str, numbers), *filter(None, (self.origin,))))


@dataclass(frozen=True)
class FeatureSet:
    """Features in a fixed order.

    Attributes
    ----------
    recipe
        How to put it together again; None for a built-in set, which its name tells.
    """

    name: str
    features: tuple[Feature, ...]
    recipe: Recipe | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(feature.name for feature in self.features)

    @property
    def lookback_bars(self) -> int:
        """Most bars any feature looks back over, the bar itself included."""
        return max(feature.lookback_bars for feature in self.features)

    @property
    def lookback_sessions(self) -> int:
        """Most whole sessions before its own that any feature looks back over."""
        return max(feature.lookback_sessions for feature in self.features)

    @property
    def fingerprint(self) -> str:
        """16 hex digits over names, order, formulas, reaches, revisions and origins: what a model was trained on."""
        return _digest("\n".join(feature._facts for feature in self.features))

    @property
    def marks(self) -> dict[str, str]:
        """The fingerprint of each feature, by name, in order."""
        return {feature.name: feature.fingerprint for feature in self.features}


def tell_apart(had: Mapping[str, str], has: Mapping[str, str]) -> str:
    """Which features a set has lost, won or changed, in words; empty where nothing can be told.

    Parameters
    ----------
    had, has
        `FeatureSet.marks`; an empty mark is not compared.
    """
    changed = [name for name in had if name in has and had[name] and has[name] and had[name] != has[name]]
    parts = {
        "without": [name for name in had if name not in has],
        "with": [name for name in has if name not in had],
        "with other formulas for": changed,
    }
    words = [f"{word} {_list(names)}" for word, names in parts.items() if names]
    if not words and list(had) != list(has):
        words = ["in another order"]
    return "; ".join(words)


def _list(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
