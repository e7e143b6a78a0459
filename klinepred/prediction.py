"""In: a bundle and bars. Out: the next bar of every symbol: expected return, P(up), 80 % interval, and what to mind."""

# Shapes: N usable rows.

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import polars as pl

from klinepred.bars.latest import first_stamps, last_bars
from klinepred.calendar import Clock, expected_after, newest_finished, place, segments
from klinepred.dataset.make import Dataset, make_dataset
from klinepred.dataset.target import BREAK, BREAK_STEPS
from klinepred.errors import DatasetError
from klinepred.features.build import build_features
from klinepred.features.spec import FeatureSet
from klinepred.model.bundle import ModelBundle, features_of
from klinepred.model.forward import forward_rows
from klinepred.remarks import count_members, remarks, strange_columns
from klinepred.schema import BAR, CALENDAR, PRICE_SCHEMA, TS, Bars
from klinepred.schema import PREDICTION_SCHEMA as PREDICTION_SCHEMA  # its place for who imports it from here

log = logging.getLogger("klinepred.prediction")

FORECASTS: Final = ("expected_return_bps", "p_up", "lo80_bps", "hi80_bps", "_middle")
"""What a row that the model abstains from does not have."""
NO_BAR: Final = "no finished bar in that range"  # why a symbol has no prediction where one is asked for


@dataclass(frozen=True)
class Forecast:
    """Predictions, and why some symbols have none.

    Attributes
    ----------
    rows
        `PREDICTION_SCHEMA`, sorted by symbol and bar_ts.
    failures
        Reason by symbol.
    prices
        As prices, row by row: symbol, bar_ts, last_close, expected_close, lo80_close, hi80_close. All of the raw
        return; the expected one is what the calibration makes of the forecast, which for a relative one knows nothing
        of the market's own move.
    """

    rows: pl.DataFrame
    failures: Mapping[str, str]
    prices: pl.DataFrame


def predict(
    bundle: ModelBundle,
    bars: Bars,
    *,
    symbols: Sequence[str] | None = None,
    as_of: datetime | None = None,
    now: datetime | None = None,
) -> pl.DataFrame:
    """The next bar of every symbol from its newest finished bar; symbols without a prediction are warned of.

    Parameters, errors and columns as for `forecast`.
    """
    answer = forecast(bundle, bars, symbols=symbols, as_of=as_of, now=now)
    for symbol, reason in answer.failures.items():
        log.warning("%s: %s", symbol, reason)
    return answer.rows


def forecast(
    bundle: ModelBundle,
    bars: Bars,
    *,
    symbols: Sequence[str] | None = None,
    as_of: datetime | None = None,
    span: tuple[datetime, datetime] | None = None,
    now: datetime | None = None,
    need_rows: bool = True,
) -> Forecast:
    """Predict through the code of training: the bundle's features, scaler, universe and sequences.

    Parameters
    ----------
    bars
        Bars of the bundle's universe and of `symbols`; the cross-section is taken over the universe alone.
    symbols
        For whom; default all symbols in `bars`.
    as_of
        Use bars that were finished then; staleness is judged then too. Never later than `now`.
    span
        Predict every bar with `span[0] <= ts < span[1]` instead of the newest one only.
    now
        The clock; default the system's.
    need_rows
        Whether it is an error that no symbol can be predicted, and told which of the universe have no bars.

    Raises
    ------
    ModelError
        The features at hand are not those of the bundle.
    DatasetError
        No symbol can be predicted; the message says why.
    """
    features = features_of(bundle)
    clock_now = now or datetime.now(UTC)
    clock_now = clock_now if as_of is None else min(as_of, clock_now)
    end = clock_now - BAR + timedelta(microseconds=1)
    frame = _recent(bars, bundle, features, end) if span is None else bars.filter(pl.col("ts") < end).collect()
    wanted = list(symbols) if symbols is not None else frame.get_column("symbol").unique().sort().to_list()
    there = set(frame.get_column("symbol").unique())
    failures = {s: f"no data for {s} finished by {clock_now:%Y-%m-%dT%H:%M:%SZ}" for s in wanted if s not in there}
    if frame.is_empty():
        if need_rows:
            raise nothing(failures)
        none, priced = (pl.DataFrame(schema=schema) for schema in (PREDICTION_SCHEMA, PRICE_SCHEMA))
        return Forecast(none, dict(sorted(failures.items())), priced)
    table = build_features(frame, features, universe=bundle.universe)
    data = make_dataset(table, bundle.dataset, scaler=bundle.scaler, split=bundle.split, need_rows=False)
    for symbol, (have_bars, have_sessions) in data.lacking.items():
        if symbol in wanted:
            failures[symbol] = too_little(features, have_bars, have_sessions)
    mask_N = _asked(data, wanted, span)
    if span is None and need_rows:
        mind_absent(bundle, frame.get_column("symbol").unique().to_list())
    counted = count_members(table, data.rows.filter(pl.Series(mask_N)).get_column("ts"))
    rows, prices = _rows(bundle, data, mask_N, clock_now, counted=counted, history=span is not None)
    asked = frame if span is None else frame.filter(pl.col("ts").is_between(*span, closed="left"))
    for symbol in set(wanted) - set(rows.get_column("symbol").to_list()) - set(failures):
        ends = "at its newest bar" if span is None else "in that range"
        failures[symbol] = broken(bundle, ends) if symbol in asked.get_column("symbol") else NO_BAR
    if rows.is_empty() and need_rows:
        raise nothing(failures)
    return Forecast(rows, dict(sorted(failures.items())), prices)


def mind_absent(bundle: ModelBundle, there: Iterable[str]) -> None:
    """A word on symbols of the universe that have no bars."""
    if absent := sorted(set(bundle.universe) - set(there)):
        log.warning(
            "no bars of %d symbols of the model's universe: %s%s",
            *(len(absent), ", ".join(absent[:12]), " …" if len(absent) > 12 else ""),
        )


def too_little(features: FeatureSet, bars: int, sessions: int) -> str:
    """Why a symbol with so much history has no prediction."""
    need = f"need {features.lookback_bars} and {features.lookback_sessions}"
    return f"too little history: have {bars} bars and {sessions} finished sessions, {need}"


def broken(bundle: ModelBundle, where: str = "at its newest bar") -> str:
    """Why a symbol has none, though it has a usable bar there."""
    run = f"of {bundle.dataset.window} bars " if bundle.dataset.cut == "window" else ""
    return f"too little history: no unbroken sequence {run}ends {where}"


def _recent(bars: Bars, bundle: ModelBundle, features: FeatureSet, end: datetime) -> pl.DataFrame:
    """As many last bars of each symbol before `end` as its newest session can depend on (a few more do no harm)."""
    begins = first_stamps(bars)

    def tail(day: int) -> pl.DataFrame:
        return last_bars(bars, before=end, reach=reach_of(bundle, features, day=day), begins=begins)

    usual = longest_day(set(bundle.calendars.values()))
    frame = tail(usual)
    day = longest_day(set(frame.get_column(CALENDAR).cast(pl.String).unique()))
    return frame if day <= usual else tail(day)  # of symbols outside the universe, with longer days


def reach_of(bundle: ModelBundle, features: FeatureSet, *, day: int) -> int:
    """How many last bars the predictions of a session of `day` bars can depend on."""
    lead = bundle.dataset.window if bundle.dataset.cut == "window" else bundle.dataset.burn_in
    sessions = max(features.lookback_sessions, BREAK_STEPS) + 2
    return max(features.lookback_bars, sessions * day) + lead + day


def longest_day(clocks: Iterable[str]) -> int:
    """Bars of the longest session of these calendars."""
    return max((int(segments(Clock.parse(text))["session_bars"].max() or 0) for text in clocks), default=0)  # type: ignore[arg-type]


def _asked(data: Dataset, wanted: list[str], span: tuple[datetime, datetime] | None) -> np.ndarray:
    newest = pl.col("ts") == pl.col("ts").max().over("symbol")
    inside = newest if span is None else pl.col("ts").is_between(span[0], span[1], closed="left")
    mask_N = data.rows.select(inside & pl.col("symbol").is_in(wanted)).to_series().to_numpy()
    return np.asarray(mask_N & data.sequences.owned(mask_N.size))


def _rows(
    bundle: ModelBundle, data: Dataset, mask_N: np.ndarray, now: datetime, *, counted: pl.DataFrame, history: bool
) -> tuple[pl.DataFrame, pl.DataFrame]:
    rows = data.rows.filter(pl.Series(mask_N)).select("symbol", bar_ts="ts", session="session", close="close")
    pred_N = forward_rows(bundle.network, data.x_NF, data.sequences.covering(mask_N))[mask_N]
    steps = (pred_N, data.kind_N[mask_N], data.vol_N[mask_N], data.x_NF[mask_N])
    return told(bundle, rows, *steps, calendars=data.calendars, now=now, counted=counted, history=history)


def told(
    bundle: ModelBundle,
    rows: pl.DataFrame,
    pred_N: np.ndarray,
    kind_N: np.ndarray,
    vol_N: np.ndarray,
    x_NF: np.ndarray,
    *,
    calendars: Mapping[str, str],
    now: datetime,
    counted: pl.DataFrame,
    history: bool,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What the network said of some bars, in the columns of `Predictions`, and as prices.

    Parameters
    ----------
    rows
        symbol, bar_ts, session, close of N bars.
    pred_N, kind_N, vol_N
        The network's answer, the kind of step ahead and its unit (`klinepred.dataset.make.Dataset`).
    x_NF
        Their scaled features: rows too far from those of training have no forecast.
    counted
        Members of the universe at each of their times (`klinepred.remarks.count_members`).
    history
        Whether the bars are of a range; else staleness at `now` is judged.
    """
    pred_N, vol_N = pred_N.astype(np.float64), vol_N.astype(np.float64)
    untrained_N = (kind_N == BREAK) & (bundle.dataset.steps == "within-session")
    pred_N = np.where(untrained_N, 0.0, pred_N)
    lo_N, hi_N = bundle.calibration.interval(pred_N, kind_N)
    rows = rows.with_columns(
        asof=pl.col("bar_ts") + BAR,
        target=pl.lit(bundle.dataset.target),
        expected_return_bps=pl.Series(pred_N * vol_N * 1e4),
        p_up=pl.Series(bundle.calibration.p_up(pred_N, kind_N)),
        lo80_bps=pl.Series(lo_N * vol_N * 1e4),
        hi80_bps=pl.Series(hi_N * vol_N * 1e4),
        in_training=pl.col("symbol").is_in(list(bundle.universe)),
        model=pl.lit(bundle.name),
        run_id=pl.lit(bundle.run_id),
        _untrained=pl.Series(untrained_N),
        _no_unit=pl.Series(~np.isfinite(vol_N)),
        _no_interval=pl.Series(~np.isfinite(lo_N)),
        _middle=pl.Series(bundle.calibration.expected(pred_N, kind_N) * vol_N * 1e4),
        **strange_columns(bundle, x_NF),
    ).with_columns(
        pl.when(pl.col("_strange").is_null()).then(pl.col(*FORECASTS).fill_nan(None)).name.keep(),
    )
    rows = _clock_columns(rows, calendars, bundle.dataset.horizon, now, history=history)
    rows = rows.join(counted, on=["bar_ts", CALENDAR], how="left", maintain_order="left")
    rows = rows.with_columns(note=remarks(bundle, history=history)).sort("symbol", "bar_ts")
    ends = {"expected_close": "_middle", "lo80_close": "lo80_bps", "hi80_close": "hi80_bps"}
    prices = rows.select(
        "symbol",
        pl.col("bar_ts").cast(TS),
        last_close="close",
        **{name: pl.col("close") * (pl.col(column) * 1e-4).exp() for name, column in ends.items()},
    )
    return rows.select(pl.col(name).cast(dtype) for name, dtype in PREDICTION_SCHEMA.items()), prices


def _clock_columns(
    rows: pl.DataFrame, calendars: Mapping[str, str], horizon: int, now: datetime, *, history: bool
) -> pl.DataFrame:
    """target_ts, stale and the age of the bar in minutes, by each symbol's calendar."""
    clocked = rows.with_columns(
        pl.col("symbol").replace_strict(dict(calendars), return_dtype=pl.String).alias(CALENDAR)
    )
    spots = (
        clocked.select(CALENDAR, "bar_ts").unique(maintain_order=True).with_columns(bar_ts=pl.col("bar_ts").cast(TS))
    )
    looked = []
    for part in spots.partition_by(CALENDAR, maintain_order=True):
        clock = Clock.parse(part.item(0, CALENDAR))
        newest = pl.lit(newest_finished(clock, now), dtype=TS)
        looked.append(part.with_columns(target_ts=expected_after(clock, part["bar_ts"], horizon), _newest=newest))
    spots = pl.concat(looked) if looked else spots.with_columns(target_ts=pl.lit(None, TS), _newest=pl.lit(None, TS))
    if history:
        session = place(spots.select(CALENDAR, ts="target_ts")).get_column("session")
        spots = spots.with_columns(session.alias("_target_session"))
    joined = clocked.join(spots, on=[CALENDAR, "bar_ts"], how="left", maintain_order="left")
    age = ((pl.lit(now, dtype=TS) - pl.col("asof")).dt.total_seconds() / 60).floor().cast(pl.Int64)
    stale = pl.lit(False) if history else pl.col("_newest") > pl.col("bar_ts")
    return joined.with_columns(stale=stale, _age=age)


def nothing(failures: Mapping[str, str]) -> DatasetError:
    """The error that says why no symbol can be predicted."""
    lines = [f"{symbol}: {reason}" for symbol, reason in sorted(failures.items())]
    shown = "; ".join(lines[:5]) + (f"; and {len(lines) - 5} more" if len(lines) > 5 else "")
    return DatasetError(
        "prediction",
        expected="at least one symbol with enough bars in the store",
        got=shown or "no bars",
        do="ingest more history, or check --symbols and --now",
    )
