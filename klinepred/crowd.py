"""In: a bundle, bars of any number of symbols. Out: the forecast of `klinepred.prediction`, a thousand at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import polars as pl

from klinepred.model.bundle import ModelBundle
from klinepred.prediction import Forecast, forecast, mind_absent, nothing
from klinepred.schema import Bars

BATCH: Final = 1000
"""So many symbols are predicted at once, or as many as the model's universe has if those are more."""


def forecast_many(
    bundle: ModelBundle,
    bars_of: Callable[[list[str]], Bars],
    *,
    symbols: Sequence[str],
    stored: set[str],
    as_of: datetime | None = None,
    span: tuple[datetime, datetime] | None = None,
    now: datetime | None = None,
) -> Forecast:
    """`klinepred.prediction.forecast` in batches, the universe with each: memory does not grow with the symbols.

    Parameters
    ----------
    bars_of
        The bars of some symbols.
    symbols
        For whom; all of them have bars.
    stored
        All that have bars.

    Raises
    ------
    ModelError, DatasetError
        As `forecast`.
    """
    batches = batches_of(symbols, bundle)
    alone = len(batches) < 2
    parts = []
    for batch in batches:
        needed = [symbol for symbol in dict.fromkeys([*bundle.universe, *batch]) if symbol in stored]
        bars = bars_of(needed)
        parts.append(forecast(bundle, bars, symbols=batch, as_of=as_of, span=span, now=now, need_rows=alone))
    if alone and parts:
        return parts[0]
    if span is None:
        mind_absent(bundle, stored)
    failures = {symbol: why for part in parts for symbol, why in part.failures.items()}
    if not (told := [part for part in parts if part.rows.height]):
        raise nothing(failures)
    rows, prices = pl.concat([part.rows for part in told]), pl.concat([part.prices for part in told])
    return replace(told[0], rows=rows, prices=prices, failures=dict(sorted(failures.items())))


def batches_of(symbols: Sequence[str], bundle: ModelBundle) -> list[list[str]]:
    """Symbols in order, cut into lists of those that are predicted together."""
    names, size = sorted(symbols), max(BATCH, len(bundle.universe))
    return [names[at : at + size] for at in range(0, len(names), size)]
