"""In: an expression with its formula and reach. Out: `Feature`, and `FeatureSet`, an ordered set with a fingerprint."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import polars as pl

Shared = tuple[dict[str, pl.Expr], ...]
"""Columns that several expressions read, by name, made once; those of a level may read those of the levels before."""


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
    """

    name: str
    formula: str
    expression: pl.Expr
    first_value: int
    lookback_bars: int
    source: str
    lookback_sessions: int = 0
    revision: int = 1

    @property
    def family(self) -> str:
        """The part of the name before the double underscore."""
        return self.name.partition("__")[0]


@dataclass(frozen=True)
class FeatureSet:
    """Features in a fixed order."""

    name: str
    features: tuple[Feature, ...]

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
        """16 hex digits over names, order, formulas, reaches and revisions: what a model was trained on."""
        text = "\n".join(
            "|".join(
                (
                    feature.name,
                    feature.formula,
                    str(feature.first_value),
                    str(feature.lookback_bars),
                    str(feature.lookback_sessions),
                    str(feature.revision),
                )
            )
            for feature in self.features
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]
