"""In: bars with their places. Out: features that know what they should not, as seen in earnest."""

# None is ever offered to a model: `klinepred audit --self-test` plants them to see whether the checks find them.

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import polars as pl

Make = Callable[[pl.DataFrame, tuple[str, ...]], pl.Series]
"""(bars sorted by symbol and ts with the columns of `klinepred.calendar.place`, universe) to a value per row."""

_C: Final = pl.col("close")
_V: Final = pl.col("volume")
_R: Final = _C.log().diff().over("symbol")
_TYPICAL: Final = (pl.col("high") + pl.col("low") + _C) / 3.0
_OPENED: Final = pl.when(pl.col("bar") > 0).then(_R)
"""Masked on the first bar of a session."""


def _only(where: pl.Expr) -> pl.Expr:
    """A return that looks ahead somewhere and back everywhere else."""
    change = _C.log().diff()
    return pl.when(where).then(change.shift(-1)).otherwise(change)


def _expression(value: pl.Expr) -> Make:
    return lambda bars, _: bars.select(value.alias("value")).to_series()


def _own(value: pl.Expr) -> Make:
    """Evaluated per symbol."""
    return _expression(value.over("symbol"))


def _joined_by_open(every: str, value: pl.Expr) -> Make:
    """A coarser bar's value, joined by the stamp at which that bar opens: hours before it is known."""

    def make(bars: pl.DataFrame, _: tuple[str, ...]) -> pl.Series:
        keyed = bars.with_columns(_coarse=pl.col("ts").dt.truncate(every))
        coarse = keyed.group_by("symbol", "_coarse").agg(value.alias("value"))
        return keyed.join(coarse, on=["symbol", "_coarse"], how="left", maintain_order="left").get_column("value")

    return make


def _right_edge(bars: pl.DataFrame, _: tuple[str, ...]) -> pl.Series:
    """15-minute bins closed on the right, labelled on the left."""
    coarse = bars.group_by_dynamic("ts", every="15m", closed="right", label="left", group_by="symbol").agg(
        value=_C.last()
    )
    joined = bars.select("symbol", "ts").join_asof(coarse, on="ts", by="symbol", check_sortedness=False)
    return joined.get_column("value") / bars.get_column("close")


def _leader(bars: pl.DataFrame, _: tuple[str, ...]) -> pl.Series:
    """The next return of the first symbol, at the same time for all."""
    first = bars.filter(pl.col("symbol") == pl.col("symbol").first()).select("ts", value=_C.log().diff().shift(-1))
    return bars.join(first, on="ts", how="left", maintain_order="left").get_column("value")


def _whole_beta(bars: pl.DataFrame, _: tuple[str, ...]) -> pl.Series:
    """Slope on the market over the whole file."""
    with_r = bars.select("symbol", "ts", r=_R).with_columns(m=pl.col("r").mean().over("ts"))
    return with_r.select((pl.cov("r", "m") / pl.col("m").var()).over("symbol")).to_series()


def _everyone(bars: pl.DataFrame, _: tuple[str, ...]) -> pl.Series:
    """Rank among all symbols at hand, not among those of the universe."""
    return bars.select(value=(_C / pl.col("open")).rank().over("ts")).to_series()


def _filtfilt(bars: pl.DataFrame, _: tuple[str, ...]) -> pl.Series:
    """An average run forwards and then backwards, so that it has no lag."""
    smooth = _C.ewm_mean(span=12).reverse().ewm_mean(span=12).reverse()
    return bars.select(value=(_C / smooth).over("symbol")).to_series()


LEAKY_EXPRESSIONS: Final[dict[str, pl.Expr]] = {
    "average of a centred window": _C / _C.rolling_mean(13, center=True),
    "return of the next bar, shift(-1)": _C.log().diff().shift(-1),
    "masked values back-filled": _OPENED.backward_fill(),
    "masked values interpolated": _OPENED.interpolate(),
    "scaled by mean and deviation of the whole series": (_C - _C.mean()) / _C.std(),
    "ranked over the whole file": _C.log().diff().rank() / pl.len(),
    "binned by quantiles of the whole file": (_C.log().diff() > _C.log().diff().quantile(0.8)).cast(pl.Float64),
    "balance of volume since the first bar, unbounded lookback": (_C.diff().sign() * _V).cum_sum(),
    "average over 500 bars said to look back 78": _C / _C.ewm_mean(span=500),
    "centred detrended price oscillator": _C - _C.rolling_mean(20).shift(-11),
    "Chikou span, the close 26 bars ahead": _C.shift(-26) / _C,
    "pivots seen before they are confirmed": (pl.col("high") == pl.col("high").rolling_max(11, center=True)).cast(
        pl.Float64
    ),
    "volatility of the coming bars": _C.log().diff().rolling_std(12).shift(-12),
    "back-adjusted by the last price": _C / _C.last(),
    "the next bar, on the fourth of a session alone": _only(pl.col("bar") == 3),
    "the next bar, on one day alone": _only(pl.col("session") == pl.date(2025, 7, 16)),
    "the next bar, where the volume is zero alone": _only(_V == 0.0),
}
"""Over one symbol's bars, by what is wrong."""

LEAKY_FEATURES: Final[dict[str, Make]] = {
    **{name: _own(value) for name, value in LEAKY_EXPRESSIONS.items()},
    "30-minute close joined by its open stamp": _joined_by_open("30m", _C.last()),
    "daily high joined by its date": _joined_by_open("1d", pl.col("high").max()),
    "weekly close joined by its first day": _joined_by_open("1w", _C.last()),
    "resampled with the wrong edge": _right_edge,
    "number of the bar since history began": _expression(pl.int_range(pl.len()).over("symbol")),
    "volume still to come in the session": _expression(
        _V.sum().over("symbol", "session") - _V.cum_sum().over("symbol", "session")
    ),
    "VWAP of the whole session": _expression(
        _C * _V.sum().over("symbol", "session") / (_TYPICAL * _V).sum().over("symbol", "session")
    ),
    "usual volume of all sessions, later ones too": _expression(_V / _V.mean().over("symbol", "bar")),
    "average run forwards and backwards": _filtfilt,
    "beta over the whole file": _whole_beta,
    "the next bar of another symbol": _leader,
    "cross-section over all that is stored": _everyone,
}
"""By what is wrong."""

SIDE_TABLE: Final = "the target, looked up in a table made beforehand"
"""A leak that no change of the bars can show: it does not read them."""


def side_table(bars: pl.DataFrame) -> Make:
    """The next return as a table of the whole file has it, whatever bars are handed in."""
    table = bars.select("symbol", "ts", value=_R.shift(-1).over("symbol") ** 3)

    def make(other: pl.DataFrame, _: tuple[str, ...]) -> pl.Series:
        return other.join(table, on=["symbol", "ts"], how="left", maintain_order="left").get_column("value")

    return make
