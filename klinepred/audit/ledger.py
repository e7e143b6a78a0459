"""In: raw closes. Out: `Ledger`: each bar's true place, return, and the stretch of time its label speaks of."""

# A second, slower way to what klinepred.dataset computes: every symbol's closes are laid out on the list of all bars
# that its calendar expects, and nothing is looked up by shifting rows. It shares no code with the target.
# Shapes: N rows, P bars that the calendar expects.

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import polars as pl

from klinepred.calendar import Clock, grid
from klinepred.schema import BAR_US

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ledger:
    """What raw closes say of each of N rows (symbol, ts); a row that is no bar has place -1.

    Attributes
    ----------
    place_N
        Position among the bars that the symbol's calendar expects; neighbours differ by one.
    close_N
        NaN = no such bar.
    return_N
        log(close of t+h / close of t) where the bars t .. t+h are all there, else NaN.
    session_N, first_session_N, last_session_N
        Days since 1970: of the bar, of bar t+1, of bar t+h.
    first_open_N, end_N
        Microseconds: open of bar t+1, close of bar t+h, by the calendar.
    bars_N, sessions_N
        Bars of the symbol up to this one, sessions of it before this one's.
    """

    place_N: Ints
    close_N: Floats
    return_N: Floats
    session_N: Ints
    first_session_N: Ints
    last_session_N: Ints
    first_open_N: Ints
    end_N: Ints
    bars_N: Ints
    sessions_N: Ints


def read_ledger(bars: pl.DataFrame, rows: pl.DataFrame, *, calendars: dict[str, str], horizon: int) -> Ledger:
    """Look every row up in the raw bars.

    Parameters
    ----------
    bars
        symbol, ts, close.
    rows
        symbol, ts; sorted by symbol.
    """
    size = rows.height
    names = ("place", "session", "first_session", "last_session", "first_open", "end", "bars", "sessions")
    ints = {name: np.full(size, -1, dtype=np.int64) for name in names}
    floats = {name: np.full(size, np.nan) for name in ("close", "return")}
    spots = rows.with_row_index("_at").select("symbol", "ts", "_at")
    known = {
        str(key[0]): part
        for key, part in bars.select("symbol", "ts", "close").partition_by("symbol", as_dict=True).items()
    }
    low, high = bars.get_column("ts").min(), bars.get_column("ts").max()
    grids: dict[str, pl.DataFrame] = {}
    for key, part in spots.partition_by("symbol", as_dict=True).items():
        symbol = str(key[0])
        text = calendars[symbol]
        if text not in grids:
            grids[text] = grid(Clock.parse(text), low, high + timedelta(days=12))  # type: ignore[arg-type,operator]
        _fill(grids[text], known.get(symbol, bars.head(0)), part, ints, floats, horizon=horizon)
    return Ledger(**{f"{name}_N": value for name, value in (ints | floats).items()})


def _fill(
    expected: pl.DataFrame,
    own: pl.DataFrame,
    part: pl.DataFrame,
    ints: dict[str, Ints],
    floats: dict[str, Floats],
    *,
    horizon: int,
) -> None:
    """One symbol."""
    ts_P = expected.get_column("ts").to_physical().to_numpy()
    session_P = expected.get_column("session").to_physical().to_numpy().astype(np.int64)
    close_P = np.full(ts_P.size, np.nan)
    have = own.get_column("ts").to_physical().to_numpy()
    spot, sits = _find(ts_P, have)
    close_P[spot[sits]] = own.get_column("close").to_numpy()[sits]
    there_P = np.isfinite(close_P)
    filled_P1 = np.concatenate([[0], np.cumsum(there_P)])
    at = part.get_column("_at").to_numpy()
    place, sits = _find(ts_P, part.get_column("ts").to_physical().to_numpy())
    at, place = at[sits], place[sits]
    at, place = at[there_P[place]], place[there_P[place]]
    last = np.minimum(place + horizon, ts_P.size - 1)
    whole = (filled_P1[last + 1] - filled_P1[place] == horizon + 1) & (place + horizon < ts_P.size)
    ints["place"][at] = place
    ints["session"][at] = session_P[place]
    ints["first_session"][at] = session_P[np.minimum(place + 1, ts_P.size - 1)]
    ints["last_session"][at] = session_P[last]
    ints["first_open"][at] = ts_P[np.minimum(place + 1, ts_P.size - 1)]
    ints["end"][at] = ts_P[last] + BAR_US
    ints["bars"][at] = filled_P1[place + 1]
    fresh_P = there_P & (np.concatenate([[-1], _carried(session_P, there_P)[:-1]]) != session_P)
    ints["sessions"][at] = np.cumsum(fresh_P)[place] - 1
    floats["close"][at] = close_P[place]
    floats["return"][at[whole]] = np.log(close_P[last[whole]]) - np.log(close_P[place[whole]])


def _find(sorted_P: Ints, wanted: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Where each stamp stands, and whether it does."""
    spot = np.minimum(np.searchsorted(sorted_P, wanted), max(0, sorted_P.size - 1))
    return spot, sorted_P[spot] == wanted if sorted_P.size else np.zeros(wanted.size, dtype=np.bool_)


def _carried(session_P: Ints, there_P: npt.NDArray[np.bool_]) -> Ints:
    """Session of the newest bar that is there, up to each place; -1 before the first."""
    newest_P = np.maximum.accumulate(np.where(there_P, np.arange(there_P.size), -1))
    return np.where(newest_P >= 0, session_P[newest_P], -1)
