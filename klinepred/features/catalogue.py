"""In: a feature set. Out: its catalogue: one row per feature, and the page docs/features.md."""

from __future__ import annotations

from itertools import groupby

import polars as pl

from klinepred.features.spec import Feature, FeatureSet

FAMILIES = {
    "price": "Price",
    "trend": "Trend",
    "volatility": "Volatility",
    "volume": "Volume and liquidity",
    "clock": "Session clock",
    "cross": "Cross-section",
}
"""Headings of the page, in its order."""

_HEAD = """\
# The features

Written by `klinepred.features.catalogue.page` from the registry; a test keeps the two equal.

The set `{name}`: {count} features ({counts}), fingerprint `{fingerprint}`.
`klinepred features list` prints this catalogue, `klinepred features show` the values.

* Every value at bar t is computed from bars up to and including t and is known at the close of t.
* o, h, l, c, v are the bar's columns. r is the log return of one bar within a stretch of trading: masked on the first
  bar after a market break and after a missing bar. s is the trailing volatility: the root of the mean of r^2 over the
  last 78 bars (at least 26 of them known). "Bars ago" counts bars that are there.
* Prices x 10 or volumes x 1000 change nothing.
* What is not defined (warm-up, 0/0, a missing bar before) is masked: null, never filled, never NaN or infinite.
* Shown from bar: the first bar of a symbol that may carry a value. Lookback: bars (the bar's own included) and whole
  sessions before its own from which on older history no longer matters, to 1e-6 of the value or the column's spread.
  A model uses a row once every feature of the set has its lookback: {bars} bars and {sessions} sessions.
* Training and evaluation keep what they computed in `data/features` of the workspace, about 220 bytes a bar; the folder
  may be deleted at any time. Bars that are as they were cost nothing the next time; a file that is not as it was
  written is made again. Of a symbol whose bars changed, those from the first change on are computed anew from four
  times their lookback: as from a fresh start, but for the last digit here and there.
"""


def catalogue(features: FeatureSet) -> pl.DataFrame:
    """One row per feature, in the set's order: name, family, formula, shown from which bar, lookback, source."""
    return pl.DataFrame(
        [
            {
                "name": feature.name,
                "family": feature.family,
                "formula": feature.formula,
                "first_value": feature.first_value,
                "lookback_bars": feature.lookback_bars,
                "lookback_sessions": feature.lookback_sessions,
                "source": f"{feature.source}; {feature.origin}" if feature.origin else feature.source,
            }
            for feature in features.features
        ]
    )


def page(features: FeatureSet) -> str:
    """The text of docs/features.md."""
    groups = [(family, list(group)) for family, group in groupby(features.features, key=lambda one: one.family)]
    head = _HEAD.format(
        name=features.name,
        count=len(features.names),
        counts=", ".join(f"{family} {len(group)}" for family, group in groups),
        fingerprint=features.fingerprint,
        bars=features.lookback_bars,
        sessions=features.lookback_sessions,
    )
    return head + "".join(_section(FAMILIES.get(family, family), group) for family, group in groups)


def _section(title: str, features: list[Feature]) -> str:
    lines = ["| name | formula | shown from bar | lookback | source |", "|---|---|---|---|---|"]
    for feature in features:
        reach = f"{feature.lookback_bars} bars"
        if feature.lookback_sessions:
            reach += f", {feature.lookback_sessions} sessions"
        cells = (f"`{feature.name}`", feature.formula, str(feature.first_value), reach, feature.source)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return f"\n## {title}\n\n" + "\n".join(lines) + "\n"
