"""In: prepared bars of one symbol. Out: 5 features of the session clock, by the calendar: no future bar is needed."""

from __future__ import annotations

import math
from typing import Final

import polars as pl

from klinepred.features.prepare import BAR
from klinepred.features.spec import Feature

_SOURCE = "Andersen and Bollerslev, Journal of Empirical Finance 4 (1997)"
_LENGTH: Final = pl.col("session_bars").cast(pl.Float64)
_ANGLE: Final = 2.0 * math.pi * BAR / _LENGTH


def _clock(what: str, formula: str, expression: pl.Expr) -> Feature:
    return Feature(f"clock__{what}", formula, expression, first_value=1, lookback_bars=1, source=_SOURCE)


CLOCK: Final = (
    _clock("progress", "bar of the session / bars of the session (0 = first bar)", BAR / _LENGTH),
    _clock("sine", "sin(2 pi bar / bars of the session)", _ANGLE.sin()),
    _clock("cosine", "cos(2 pi bar / bars of the session)", _ANGLE.cos()),
    _clock("opening_6", "max(0, 1 - bar / 6): 1 on the first bar, 0 after half an hour", (1.0 - BAR / 6.0).clip(0.0)),
    _clock(
        "weekday",
        "(ISO weekday of the session - 3) / 2: -1 Monday, 1 Friday",
        (pl.col("session").dt.weekday().cast(pl.Float64) - 3.0) / 2.0,
    ),
)
