"""In: bars of one symbol in time order. Out: those whose price is an isolated error, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from klinepred.schema import BAR_SCHEMA, PRICES

FACTOR: Final = 5.0
"""A price further than this from its neighbours, up or down, is looked at. Moves of markets stay inside between the
close of a bar and the open of the next: halts and crashes have cost 80 %, no more, and come with bars that reach from
one level to the other; wrong units and slipped decimals begin at 10."""
AGREE: Final = 1.5
"""Both sides must agree within this factor for what lies between them to be wrong, and not on its way."""
RUN: Final = 3
"""So many bars in a row may be wrong. A level that stays longer is a move, or another unit, not an isolated error."""
NEAR: Final = timedelta(days=1)
"""Neighbours further away say nothing of a price."""
SLIP: Final = 0.04
"""Where trading could have led to the price within a bar, only a shift by whole decimal places is an error: the factor
must be a power of ten within this much (decimal logarithm, 10 %)."""
CALM: Final = 1.2
"""A bar whose open and close differ by more than this factor is wild: nothing is said of its high and low."""
TICKS: Final = 8
"""Prices closer than this many steps of the quotes (0.01 and 0.06, say) are not compared by their ratio."""
ISOLATED: Final = "an isolated price error"
UNCONFIRMED: Final = "an unconfirmed price"
_LOG: Final = float(np.log(FACTOR))
_US: Final = int(NEAR.total_seconds() * 1e6)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def is_suspect() -> pl.Expr:
    """True for quarantined rows whose only fault was their price beside that of their neighbours."""
    return pl.col("reason").str.ends_with(ISOLATED) | pl.col("reason").str.ends_with(UNCONFIRMED)


def find_isolated(bars: pl.DataFrame) -> pl.DataFrame:
    """Bars that lie a large factor off both neighbours, or off the only one that can be seen.

    The prices of a symbol are read as the path open, close, open, close … and cut where it steps by more than
    `FACTOR`. A piece of up to `RUN` bars between longer ones is off where it differs by more than `FACTOR` from the
    nearest of them on each side, and these agree. It must lie there with whole bars, high and low included, or by
    whole decimal places: bars that reach from one level to the other show trading. A high or low that is whole
    decimal places off its own calm bar is off too. No symbol is compared with another.

    Parameters
    ----------
    bars
        `BAR_SCHEMA` and `mine` (Boolean), sorted by symbol and ts, unique, values possible.

    Returns
    -------
    polars.DataFrame
        symbol, ts, reason, `backed`: whether a bar with `mine` is part of the level it was compared with.
    """
    found = [
        pl.DataFrame(
            schema={**{k: BAR_SCHEMA[k] for k in ("symbol", "ts")}, "reason": pl.String(), "backed": pl.Boolean()}
        )
    ]
    wide = bars.group_by("symbol").agg(wide=pl.col("high").max() > FACTOR * pl.col("low").min()).filter("wide")
    for (_,), part in bars.join(wide, on="symbol", how="semi", maintain_order="left").group_by("symbol"):
        off = _judge(part.sort("ts"))
        found += [off] if off.height else []
    return pl.concat(found).sort("symbol", "ts")


@dataclass(frozen=True)
class _Pieces:
    """Stretches of the path of prices without a step of more than `FACTOR`, one element each.

    first, last
        Numbers of their first and last point; points 2i and 2i+1 are open and close of bar i.
    before, after
        Logarithm of the nearest price of a long piece on that side; NaN = there is none.
    gap_before, gap_after
        Microseconds to it; a large number where there is none.
    """

    first: Ints
    last: Ints
    long: Bools
    before: Floats
    after: Floats
    gap_before: Ints
    gap_after: Ints
    backed: Bools


def _judge(bars: pl.DataFrame) -> pl.DataFrame:
    open_, high, low, close = (bars.get_column(name).to_numpy() for name in PRICES)
    stamps = bars.get_column("ts").dt.epoch("us").to_numpy()
    path = np.log(np.column_stack([open_, close]).ravel())
    pieces = _cut(path, stamps, bars.get_column("mine").to_numpy())
    tick = tick_of(np.concatenate([open_, high, low, close]))
    reasons: dict[int, str] = {}
    backed: dict[int, bool] = {}
    off = _off(pieces, path, high=np.log(high), low=np.log(low), tick=tick)
    right = np.flatnonzero(~off)
    for number in np.flatnonzero(off):  # pieces, not bars
        seen = bool(right.size) and right[0] < number, bool(right.size) and right[-1] > number
        words = _words(pieces, int(number), path, earlier=seen[0], later=seen[1])
        for bar in range(pieces.first[number] // 2, pieces.last[number] // 2 + 1):
            reasons[bar], backed[bar] = words, bool(pieces.backed[number])
    for bar, words in _wicks(bars, tick, set(reasons), stamps).items():
        reasons[bar], backed[bar] = words, True
    spots = sorted(reasons)
    return bars[spots].select(
        "symbol",
        "ts",
        reason=pl.Series([reasons[spot] for spot in spots], dtype=pl.String),
        backed=pl.Series([backed[spot] for spot in spots], dtype=pl.Boolean),
    )


def _cut(path: Floats, stamps: Ints, mine: Bools) -> _Pieces:
    starts = np.flatnonzero(np.concatenate([[True], np.abs(np.diff(path)) > _LOG]))
    last = np.concatenate([starts[1:], [len(path)]]) - 1
    long = last - starts + 1 > 2 * RUN
    if not long.any():  # a short history: the level of most of its prices counts, if there is one
        middle = np.median(path)
        levels = np.array([np.median(path[a : b + 1]) for a, b in zip(starts, last, strict=True)])
        long = np.abs(levels - middle) <= np.log(AGREE)
    order = np.arange(len(starts))
    left = np.maximum.accumulate(np.where(long, order, -1))
    right = np.minimum.accumulate(np.where(long, order, len(starts))[::-1])[::-1]
    has_left, has_right = left >= 0, right < len(starts)
    left, right = np.where(has_left, left, 0), np.where(has_right, right, 0)
    own = np.add.reduceat(np.repeat(mine, 2).astype(np.int64), starts) > 0
    return _Pieces(
        first=starts,
        last=last,
        long=long,
        before=np.where(has_left, path[last[left]], np.nan),
        after=np.where(has_right, path[starts[right]], np.nan),
        gap_before=np.where(has_left, stamps[starts // 2] - stamps[last[left] // 2], 2 * _US),
        gap_after=np.where(has_right, stamps[starts[right] // 2] - stamps[last // 2], 2 * _US),
        backed=(has_left & own[left]) | (has_right & own[right]),
    )


def _off(pieces: _Pieces, path: Floats, *, high: Floats, low: Floats, tick: float) -> Bools:
    """Which pieces are wrong."""
    bar, end = pieces.first // 2, pieces.last // 2
    spots = np.minimum(np.column_stack([bar, end + 1]).ravel(), len(high))
    top = np.maximum.reduceat(np.append(high, -np.inf), spots)[::2]
    bottom = np.minimum.reduceat(np.append(low, np.inf), spots)[::2]
    whole = (pieces.first % 2 == 0) & (pieces.last % 2 == 1)
    head, tail = path[pieces.first], path[pieces.last]
    both = np.ones(len(whole), dtype=bool)
    up, down = both.copy(), both.copy()
    slipped = np.ones(len(whole), dtype=bool)
    clear = np.ones(len(whole), dtype=bool)
    for ref, near in ((pieces.before, head), (pieces.after, tail)):
        seen = ~np.isnan(ref)
        up &= ~seen | (bottom - ref > _LOG)
        down &= ~seen | (top - ref < -_LOG)
        places = (near - ref) / np.log(10.0)
        slipped &= ~seen | ((np.round(places) != 0) & (np.abs(places - np.round(places)) <= SLIP))
        with np.errstate(invalid="ignore"):
            clear &= ~seen | (np.abs(np.exp(near) - np.exp(ref)) > TICKS * tick)
    seen_before, seen_after = ~np.isnan(pieces.before), ~np.isnan(pieces.after)
    near_before, near_after = pieces.gap_before <= _US, pieces.gap_after <= _US
    apart = np.abs(np.nan_to_num(pieces.before) - np.nan_to_num(pieces.after)) > np.log(AGREE)
    doubtful = near_before & near_after & apart
    shown = (near_before | near_after) & (seen_before | seen_after) & ~doubtful
    wrong: Bools = ~pieces.long & shown & clear & ((whole & (up | down)) | slipped)
    return wrong


def _words(pieces: _Pieces, number: int, path: Floats, *, earlier: bool, later: bool) -> str:
    """Why a piece is set aside; `earlier`, `later`: whether there are bars on that side that are not."""
    if pieces.gap_before[number] <= _US:
        times = _times(float(np.exp(path[pieces.first[number]] - pieces.before[number])))
    else:
        times = _times(float(np.exp(path[pieces.last[number]] - pieces.after[number])))
    if earlier and later:
        return f"{times} its neighbours: {ISOLATED}"
    side, other = ("before", "after") if earlier else ("after", "before")
    return f"{times} the bar {side} it, with none {other} it: {UNCONFIRMED}"


def _wicks(bars: pl.DataFrame, tick: float, wrong: set[int], stamps: Ints) -> dict[int, str]:
    """Bars of which only the high or the low is off by whole decimal places."""
    open_, high, low, close = (bars.get_column(name).to_numpy() for name in PRICES)
    top, bottom = np.maximum(open_, close), np.minimum(open_, close)
    middle = np.log(close)
    step = (np.abs(np.diff(middle)) <= _LOG) & (np.diff(stamps) <= _US)
    held = np.concatenate([[False], step]) | np.concatenate([step, [False]])
    fine = (top <= CALM * bottom) & held
    out: dict[int, str] = {}
    for name, ratio, gap in (("high", high / top, high - top), ("low", bottom / low, bottom - low)):
        places = np.log10(ratio)
        whole = np.round(places)
        # the true high lies at or a little above the body, so the slip shows on one side only
        hit = fine & (whole >= 1) & (places - whole >= -0.005) & (places - whole <= SLIP) & (gap > TICKS * tick)
        for spot in np.flatnonzero(hit):
            if int(spot) not in wrong:
                size = float(ratio[spot]) if name == "high" else 1.0 / float(ratio[spot])
                out.setdefault(int(spot), f"its {name} is {_times(size)} the rest of the bar: {ISOLATED}")
    return out


def _times(ratio: float) -> str:
    """The factor in words: a power of ten as such, others to two digits."""
    big = max(ratio, 1.0 / ratio)
    places = round(float(np.log10(big)))
    shown = f"{10**places:,}" if abs(float(np.log10(big)) - places) <= SLIP else f"{float(f'{big:.2g}'):,.6g}"
    return f"{shown} times" if ratio > 1.0 else f"1/{shown} of"


def tick_of(prices: Floats) -> float:
    """The step of the quotes: the largest power of ten that all prices are multiples of; 0 = finer than 1e-12."""
    for digits in range(13):
        scaled = prices * 10.0**digits
        # prices that went through 32-bit floats are off in the seventh digit
        if bool(np.all(np.abs(scaled - np.round(scaled)) <= 1e-6 * scaled)):
            return float(10.0**-digits)
    return 0.0
