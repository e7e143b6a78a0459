"""In: predictions whose bar should have come, the stored bars. Out: what came of each, by the code of the target."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl

from klinepred.bars.store import scan_bars, stored_clocks
from klinepred.calendar import Clock, place, segments
from klinepred.dataset.target import QUORUM, add_targets
from klinepred.live.ledger import universe_of
from klinepred.paths import Workspace
from klinepred.schema import BAR, CALENDAR, TS
from klinepred.settings import DatasetSettings

PATIENCE: Final = timedelta(days=7)
"""So long after its target bar a prediction waits for bars that may still be delivered."""
REACH: Final = timedelta(days=60)
"""Bars before the first prediction that the trailing volatility of a step is taken from: more than 20 nights."""
OUTCOME: Final = (
    *("kind", "session", "session_end"),
    *("realised_bps", "raw_bps", "vol_bps", "reason", "open"),
)


def outcomes(due: pl.DataFrame, space: Workspace, *, now: datetime) -> pl.DataFrame:
    """What came of predictions.

    The return runs from the close of `bar_ts` to the close of `target_ts`, by `klinepred.dataset.target.add_targets`:
    only where both ends are stored bars and none is missing between; relative (if that was learned) to the mean of
    the model's universe, over those that have it.

    Parameters
    ----------
    due
        symbol, bar_ts, target_ts, target, model, run_id, and whatever else.
    now
        The clock (aware).

    Returns
    -------
    polars.DataFrame
        `due` with kind (0 = within a session, 1 = across a break), session (Date, in which the return ends) and its
        end, realised_bps (of the kind the model learned), raw_bps, vol_bps (the trailing volatility that is its
        unit), reason (why there is no realised_bps; null where there is) and open (a bar may still come).
    """
    clocks = {symbol: str(clock) for symbol, clock in stored_clocks(space).items()}
    rows = due.with_row_index("_row").with_columns(
        pl.col("symbol").replace_strict(clocks, default=None, return_dtype=pl.String).alias(CALENDAR)
    )
    rows = rows.with_columns(_horizon=_slots(rows, "target_ts") - _slots(rows, "bar_ts"))
    universes = {
        (model, run_id): universe_of(space, model, run_id)
        for model, run_id, target in rows.select("model", "run_id", "target").unique().iter_rows()
        if target == "relative"
    }
    names = {symbol for symbol in due.get_column("symbol").unique() if symbol in clocks}
    names |= {symbol for found in universes.values() for symbol in found or () if symbol in clocks}
    first: Any = due.get_column("bar_ts").min()
    closes = (
        scan_bars(space, symbols=sorted(names), start=first - REACH)
        .select("symbol", "ts", "close", pl.col(CALENDAR).cast(pl.String))
        .collect()
        if names
        else pl.DataFrame(schema={"symbol": pl.String, "ts": TS, "close": pl.Float64, CALENDAR: pl.String})
    )
    newest = closes.group_by("symbol").agg(_newest=pl.col("ts").max())
    rows = rows.join(newest, on="symbol", how="left", maintain_order="left")
    parts = []
    for (model, run_id, target, horizon), part in rows.group_by("model", "run_id", "target", "_horizon"):
        universe = universes.get((model, run_id)) if target == "relative" else ()
        parts.append(_of_model(part, closes, newest, horizon=horizon, universe=universe, now=now))
    return pl.concat(parts).sort("_row").select(*due.columns, *OUTCOME)


def _slots(rows: pl.DataFrame, column: str) -> pl.Series:
    return place(rows.select(pl.col(column).alias("ts"), CALENDAR)).get_column("slot")


def _of_model(
    part: pl.DataFrame,
    closes: pl.DataFrame,
    newest: pl.DataFrame,
    *,
    horizon: int | None,
    universe: tuple[str, ...] | None,
    now: datetime,
) -> pl.DataFrame:
    """`outcomes` of rows with one horizon; `universe`: () for raw returns, None = not known."""
    relative = universe is None or bool(universe)
    known = horizon is not None and horizon >= 1 and closes.height > 0
    if known:
        settings = DatasetSettings(horizon=horizon or 1, target="relative" if universe else "raw")
        found = add_targets(closes, settings, universe=universe or ()).select(
            "symbol", "kind", "vol", "ret", "y", bar_ts="ts", session="last_session"
        )
        part = part.join(found, on=["symbol", "bar_ts"], how="left", maintain_order="left")
        stored = (
            part.select("symbol", "bar_ts")
            .join(closes, left_on=["symbol", "bar_ts"], right_on=["symbol", "ts"], how="left", maintain_order="left")
            .get_column("close")
        )
        part = part.with_columns(_stored=stored.is_not_null())
    else:
        none = {"kind": pl.Int8, "vol": pl.Float64, "ret": pl.Float64, "y": pl.Float64, "session": pl.Date}
        part = part.with_columns(*(pl.lit(None, dtype).alias(name) for name, dtype in none.items()), _stored=False)
    late = pl.lit(now, TS) > pl.col("target_ts") + BAR + PATIENCE
    come = pl.col("_newest") >= pl.col("target_ts")
    waits = pl.Series(_waits(part, newest, universe or ()), dtype=pl.Boolean)
    is_open = ~late & (~come.fill_null(False) | (waits & pl.col("ret").is_not_null()))
    clock = "%Y-%m-%dT%H:%M:%SZ"
    no_return = (
        pl.when(pl.col(CALENDAR).is_null() | pl.col("_newest").is_null())
        .then(pl.lit("no bars of it are stored"))
        .when(not known)
        .then(pl.lit("its calendar is not the one it was predicted by"))
        .when(~pl.col("_stored"))
        .then(pl.format("its bar {} is not stored", pl.col("bar_ts").dt.strftime(clock)))
        .when(come)
        .then(pl.format("missing bar: not all up to {} are stored", pl.col("target_ts").dt.strftime(clock)))
        .otherwise(pl.format("no bar came within {} days", pl.lit(PATIENCE.days)))
    )
    reason = (
        pl.when(pl.col("ret").is_null())
        .then(no_return)
        .when(universe is None)
        .then(pl.lit("the universe of its model is not known"))
        .when(pl.lit(relative) & pl.col("vol").is_null())
        .then(pl.lit("no trailing volatility to compare it in"))
        .when(pl.lit(relative) & pl.col("y").is_null())
        .then(pl.lit(f"fewer than {QUORUM} symbols of its universe have this return"))
    )
    realised = pl.col("y") * pl.col("vol") * 1e4 if relative else pl.col("ret") * 1e4
    part = part.with_columns(
        pl.col("kind").cast(pl.Int64),
        realised_bps=pl.when(reason.is_null()).then(realised),
        raw_bps=pl.col("ret") * 1e4,
        vol_bps=pl.col("vol") * 1e4,
        reason=reason,
        open=is_open,
    )
    return _with_ends(part)


def _waits(part: pl.DataFrame, newest: pl.DataFrame, universe: tuple[str, ...]) -> np.ndarray:
    """Whether bars of some symbol of the universe may still come, without which the mean would be another."""
    last = newest.filter(pl.col("symbol").is_in(list(universe))).get_column("_newest").sort().to_physical().to_numpy()
    target = part.get_column("target_ts").to_physical().to_numpy()
    gone = part.get_column("bar_ts").to_physical().to_numpy() - PATIENCE // timedelta(microseconds=1)
    waits: np.ndarray = np.searchsorted(last, target) > np.searchsorted(last, gone)
    return waits


def _with_ends(part: pl.DataFrame) -> pl.DataFrame:
    """`session_end`: the last close of the session that the return ends in, by the symbol's calendar."""
    ends = [
        segments(Clock.parse(name))
        .group_by("session")
        .agg(session_end=pl.col("close").max().cast(TS))
        .with_columns(pl.lit(name).alias(CALENDAR))
        for name in part.get_column(CALENDAR).drop_nulls().unique().sort()
    ]
    if not ends:
        return part.with_columns(session_end=pl.lit(None, TS))
    return part.join(pl.concat(ends), on=[CALENDAR, "session"], how="left", maintain_order="left")
