"""In: a feature set, a clock. Out: `GoldenBars`: made-up bars and their features; whether these are still so."""

# Shapes: S symbols, B bars, V values of a bar (open, high, low, close, volume), M rows kept, F features.

from __future__ import annotations

import hashlib
import logging
import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import numpy as np
import polars as pl
from safetensors.numpy import load, save

from klinepred import __version__
from klinepred.calendar import Clock, covered, grid
from klinepred.dataset.scale import Scaler
from klinepred.errors import CalendarError, FeatureError, KlinepredError, ModelError
from klinepred.features.build import build_features
from klinepred.features.spec import FeatureSet
from klinepred.schema import CALENDAR, TS, VALUES

log = logging.getLogger("klinepred.model")

FILE: Final = "golden_bars.safetensors"
SYMBOLS: Final = tuple(f"GOLD{number}" for number in range(6))
"""One more than the cross-section needs, since the last one lacks bars."""
ROWS: Final = 8
"""Rows of each symbol that are kept, spread over its last two sessions."""
TOLERANCE: Final = 1e-4
"""Largest difference that passes, in the scaler's units beside as much of the scaled value: processors and versions of
polars add up in other orders."""
_PACKAGE: Final = Path(__file__).parents[1]
_CODE: Final = ("features/*.py", "formula/*.py", "calendar.py", "sessions.py")


@dataclass(frozen=True, eq=False)
class GoldenBars:
    """Bars, and what their features were when a model was made.

    Attributes
    ----------
    ts_B
        Opens, Int64 us since 1970 UTC.
    values_SBV
        Float32; NaN where a symbol has no bar.
    at_M
        The rows kept, counted over the bars that there are, by symbol and time.
    features_MF
        Their features, Float32, unscaled; NaN = null.
    made
        `clock` of the bars; and by what code, klinepred, polars, polars-talib and machine.
    """

    ts_B: np.ndarray
    values_SBV: np.ndarray
    at_M: np.ndarray
    features_MF: np.ndarray
    made: Mapping[str, str]

    def to_bytes(self) -> bytes:
        """The arrays as safetensors."""
        arrays = {"ts": self.ts_B, "values": self.values_SBV, "at": self.at_M, "features": self.features_MF}
        return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})

    @classmethod
    def from_bytes(cls, payload: bytes, made: Mapping[str, Any]) -> GoldenBars:
        """The inverse of `to_bytes`; KeyError or SafetensorError where it is none."""
        arrays = load(payload)
        kept = {str(key): str(text) for key, text in made.items()}
        return cls(arrays["ts"], arrays["values"], arrays["at"], arrays["features"], kept)

    def bars(self) -> pl.DataFrame:
        """As `Bars` has them."""
        there_SB = ~np.isnan(self.values_SBV[:, :, 0])
        code_N, at_N = np.nonzero(there_SB)
        return pl.DataFrame(
            {
                "symbol": pl.Series(SYMBOLS).gather(code_N),
                "ts": pl.Series(self.ts_B[at_N]).cast(pl.Datetime("us")).dt.replace_time_zone("UTC").cast(TS),
                **{
                    name: self.values_SBV[:, :, place][there_SB].astype(np.float64) for place, name in enumerate(VALUES)
                },
            }
        ).with_columns(pl.lit(self.made["clock"]).alias(CALENDAR))


_MADE: Final[dict[tuple[str, str, date], GoldenBars]] = {}
"""Of this process: the folds and rounds of a pipeline have the same features."""
_PASSED: Final[WeakSet[GoldenBars]] = WeakSet()
"""What this process has checked: predictions ask for the features again and again."""


@cache
def here() -> dict[str, str]:
    """By what features would be computed now; `code` is a digest of the source they come from."""
    digest = hashlib.sha256()
    for pattern in _CODE:
        for path in sorted(_PACKAGE.glob(pattern)):
            digest.update(path.read_bytes())
    return {
        "code": digest.hexdigest()[:16],
        "klinepred": __version__,
        "polars": pl.__version__,
        "polars-talib": version("polars-talib"),
        "machine": platform.machine(),
    }


def make_golden_bars(features: FeatureSet, *, clocks: Mapping[str, str], until: date) -> GoldenBars | None:
    """Made-up bars by the clock that most symbols have, as many as the features look back over, and their features.

    One symbol lacks bars; another has bars without volume, and flat ones. None, with a word, where the calendar does
    not reach so far back or the features cannot be computed of such bars: a finished training is not lost for it.

    Parameters
    ----------
    clocks
        By symbol of the universe, text of its `Clock`.
    until
        The last session.
    """
    clock = Counter(sorted(clocks.values())).most_common(1)[0][0]
    key = (features.fingerprint, clock, until)
    if key in _MADE:
        return _MADE[key]
    try:
        expected = _grid(features, Clock.parse(clock), until)
        ts_B = expected.get_column("ts").to_physical().to_numpy().astype(np.int64)
        day = expected.filter(pl.col("session") == pl.col("session").max()).height
        blank = GoldenBars(ts_B, _walk(ts_B.size), np.zeros(0), np.zeros(0), {"clock": clock, **here()})
        frame = blank.bars()
        at_M = _spread(frame, day)
        values = _features(blank, features, at_M)
    except (CalendarError, FeatureError) as error:
        log.warning("the model has no golden bars: %s (%s)", error.summary, error.got)
        return None
    made = _MADE[key] = GoldenBars(ts_B, blank.values_SBV, at_M, values, blank.made)
    return made


def check_golden_bars(golden: GoldenBars, features: FeatureSet, scaler: Scaler, *, name: str) -> None:
    """Make sure that the features of the golden bars are those that the model was trained on.

    It costs nothing where the code and the versions that they come from are those of then.

    Parameters
    ----------
    scaler
        Of the model: differences are measured as the network reads them.
    name
        Of the model, for the message.

    Raises
    ------
    ModelError
        One differs by more than `TOLERANCE`; the message has both numbers.
    """
    if golden in _PASSED or {**golden.made, **here()} == dict(golden.made):
        return
    try:
        got_MF = _features(golden, features, golden.at_M)
    except (KlinepredError, TypeError, ValueError, LookupError, OverflowError, pl.exceptions.PolarsError) as error:
        got = " ".join(str(error).split())[:200]
        raise _differs(name, golden, want="features of its golden bars", got=got) from error
    want_MF = golden.features_MF
    if got_MF.shape != want_MF.shape:
        raise _differs(name, golden, want=f"golden features {want_MF.shape}", got=f"{got_MF.shape}")
    apart_MF = np.abs(got_MF.astype(np.float64) - want_MF) / scaler.scale_F
    limit_MF = TOLERANCE * (1.0 + np.abs(want_MF - scaler.centre_F) / scaler.scale_F)
    bad_MF = ~((apart_MF <= limit_MF) | (np.isnan(got_MF) & np.isnan(want_MF)))
    if bad_MF.any():
        spot = tuple(np.argwhere(bad_MF)[0])
        odd = [one for one, bad in zip(features.names, bad_MF.any(axis=0), strict=True) if bad]
        row = f"in row {int(golden.at_M[spot[0]]) + 1} of its golden bars"
        others = f"; {len(odd) - 1} more features differ: {', '.join(odd[1:4])}{' …' * (len(odd) > 4)}"
        raise _differs(
            name,
            golden,
            want=f"{features.names[spot[1]]} of {_text(want_MF[spot])} {row}",
            got=_text(got_MF[spot]) + (others if odd[1:] else ""),
        )
    _PASSED.add(golden)


def _grid(features: FeatureSet, clock: Clock, until: date) -> pl.DataFrame:
    """Bars of as many last sessions as the second of the last two looks back over."""
    end = datetime.combine(until, time(), UTC) + timedelta(days=1)
    days = 3 * (features.lookback_sessions + 2) + features.lookback_bars // 50 + 10
    covered(clock, end - timedelta(days=days), end)
    bars = grid(clock, end - timedelta(days=days), end)
    newest = bars.get_column("session").unique().sort().tail(features.lookback_sessions + 3)
    day = bars.filter(pl.col("session") == pl.col("session").max()).height
    enough = bars.with_row_index("at", offset=1).filter(
        (pl.col("session") >= newest.min()) | (pl.col("at") > bars.height - features.lookback_bars - 2 * day)
    )
    return enough.drop("at")


def _walk(bars: int) -> np.ndarray:
    """Prices and volumes [S, B, V], Float32."""
    rng = np.random.default_rng(7)
    noise_SB = rng.standard_normal((len(SYMBOLS), bars))
    close_SB = 100.0 * np.exp(np.cumsum(0.001 * noise_SB + 0.0005 * rng.standard_normal(bars), axis=1))
    before_SB = np.concatenate([np.full((len(SYMBOLS), 1), 100.0), close_SB[:, :-1]], axis=1)
    open_SB = before_SB * np.exp(0.0002 * rng.standard_normal(close_SB.shape))
    high_SB = np.maximum(open_SB, close_SB) * (1.0 + 0.0004 * rng.random(close_SB.shape))
    low_SB = np.minimum(open_SB, close_SB) * (1.0 - 0.0004 * rng.random(close_SB.shape))
    volume_SB = np.round(1000.0 * np.exp(0.5 * rng.standard_normal(close_SB.shape)))
    values_SBV = np.stack([open_SB, high_SB, low_SB, close_SB, volume_SB], axis=2).astype(np.float32)
    values_SBV[-2, ::41, :3] = values_SBV[-2, ::41, 3:4]
    values_SBV[-2, ::29, 4] = 0.0
    values_SBV[-1, 5::67] = np.nan
    return values_SBV


def _spread(frame: pl.DataFrame, day: int) -> np.ndarray:
    """Places of rows over the last two sessions of each symbol, the newest bar among them."""
    ends_S = np.cumsum(frame.get_column("symbol").rle().struct.field("len").to_numpy().astype(np.int64))
    return np.concatenate([np.linspace(end - 2 * day, end - 1, ROWS).round().astype(np.int64) for end in ends_S])


def _features(golden: GoldenBars, features: FeatureSet, at_M: np.ndarray) -> np.ndarray:
    table = build_features(golden.bars(), features, universe=SYMBOLS).frame
    rows = table.select(features.names)[at_M].cast(pl.Float32).fill_null(float("nan"))
    return np.ascontiguousarray(rows.to_numpy(), dtype=np.float32)


def _differs(name: str, golden: GoldenBars, *, want: str, got: str) -> ModelError:
    changed = [key for key, text in here().items() if golden.made.get(key) != text]
    was = ", ".join(f"{key} {golden.made.get(key)}" for key in changed)
    return ModelError(
        f"features of model {name} are not those it was trained on, under the same names",
        expected=f"{want}, as by {was}",
        got=f"{got}, by {', '.join(f'{key} {here()[key]}' for key in changed)}",
        do="use the version of klinepred and the packages it was trained with, or train again with these",
    )


def _text(value: float) -> str:
    return "none" if np.isnan(value) else f"{value:.7g}"
