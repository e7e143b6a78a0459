"""In: nothing. Out: leaks as users could bring them in: SQL in a pipeline, expressions from a package."""

# None of this is ever offered to a model: `klinepred audit --self-test` tries whether the doors and the checks hold.

from __future__ import annotations

from typing import Final

import polars as pl

from klinepred.audit.leaky_features import LEAKY_EXPRESSIONS
from klinepred.errors import ConfigError
from klinepred.features.custom import sql_feature
from klinepred.features.spec import Feature

SQL: Final[dict[str, str]] = {
    "LEAD": "LEAD(close, 1) OVER (ORDER BY ts) / close",
    "LAG by a negative number": "LAG(close, -1) OVER (ORDER BY ts) / close",
    "a window with following rows": "AVG(close) OVER (ORDER BY ts ROWS BETWEEN 6 PRECEDING AND 6 FOLLOWING)",
    "a window to the end": "SUM(volume) OVER (ORDER BY ts ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
    "a window backwards in time": "AVG(close) OVER (ORDER BY ts DESC ROWS BETWEEN 5 PRECEDING AND CURRENT ROW)",
    "a bare aggregate": "close / AVG(close)",
    "an empty window": "close / AVG(close) OVER ()",
    "the whole session": "volume / SUM(volume) OVER (PARTITION BY session)",
    "a window without a bound": "SUM(volume) OVER (ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
    "the last value": "LAST_VALUE(close) OVER (ORDER BY ts ROWS BETWEEN 5 PRECEDING AND 5 FOLLOWING)",
    "a rank over the whole series": "RANK() OVER (ORDER BY close)",
    "a median of the whole series": "close / MEDIAN(close)",
    "a query of its own": "(SELECT MAX(close) FROM self)",
}
"""By what is wrong; all for `[features.custom]`."""

_C: Final = pl.col("close")
_V: Final = pl.col("volume")

PACKAGE: Final[dict[str, pl.Expr]] = {
    **LEAKY_EXPRESSIONS,
    "price of the whole session": _C * _V.sum().over("session") / (_C * _V).sum().over("session"),
    "volume still to come in the session": (_V.sum() - _V.cum_sum()).over("session"),
    "usual volume of all sessions": _V / _V.mean().over("bar"),
}
"""By what is wrong; all as an entry point hands them over."""


def refused(name: str, text: str) -> tuple[str, Feature | None]:
    """Why a formula is refused when the pipeline is read; or, where it is not, the feature it makes."""
    try:
        return "", sql_feature(name, text)
    except ConfigError as error:
        return f"refused when the pipeline is read: {error.got}", None


def package_feature(name: str, expression: pl.Expr) -> Feature:
    """A feature as its authors might declare it: with a lookback of 78 bars."""
    return Feature(name, "planted", expression, first_value=1, lookback_bars=78, lookback_sessions=1, source="planted")
