"""In: `SimulateSettings`, a clock. Out: `Delivery` after `Delivery`, one month of a simulated market each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from klinepred.bars.delivery import Delivery
from klinepred.bars.sources.market import Stretch, Traded, open_market, trade
from klinepred.bars.sources.planted import Floats
from klinepred.calendar import Clock, segments
from klinepred.errors import CalendarError
from klinepred.headway import stepwise
from klinepred.schema import BAR_US, TS, VALUES
from klinepred.settings import SimulateSettings


def simulate(settings: SimulateSettings, *, clock: Clock) -> Iterator[Delivery]:
    """Simulate a market with its stylised facts and, where `settings.ic` is above 0, a planted next-bar signal.

    Parameters
    ----------
    settings
        Same settings and clock: same bars, bit for bit. A later `end` adds bars and changes none; symbols are called
        SIM001, SIM002, … (more digits from 1,000 symbols on).
    clock
        Whose sessions are traded, half days and breaks included.

    Yields
    ------
    Delivery
        All symbols of one month (of the session's date), sorted by symbol and ts; no more than a month is held in
        memory. Prices are mid prices, or bid and ask where `settings.bounce` is above 0; volume is a whole number.

    Raises
    ------
    CalendarError
        The clock is not known, or has no session between `start` and `end`.
    """
    source = f"simulate seed={settings.seed} symbols={settings.symbols} ic={settings.ic:g} bounce={settings.bounce:g}"
    remarks: tuple[str, ...] = ()
    if settings.symbols == 1 and settings.market > 0.0:
        remarks = ("simulate: with one symbol there is no market factor; market is taken as 0",)
    months = (settings.end.year - settings.start.year) * 12 + settings.end.month - settings.start.month + 1
    for month in stepwise(_months(settings, clock), "months simulated", total=months):
        yield Delivery(_table(month, settings, VALUES, _bars), source, remarks=remarks)
        remarks = ()


def planted_forecast(settings: SimulateSettings, *, clock: Clock) -> Iterator[pl.DataFrame]:
    """Say what the best forecaster of that market knew before each bar, month by month as `simulate`.

    Yields
    ------
    polars.DataFrame
        One row per bar of `simulate`, in its order. `symbol`, `ts`: the bar that is FORECAST. `signal`: mean 0,
        standard deviation 1, from bars before ts alone; null on the first bar after a market break, where nothing is
        planted. `own_sd`, `sd`: standard deviation of the bar's own (idiosyncratic) log return and of the whole, known
        before it opens. `shock`: the own log return that came, over `own_sd`. corr(signal, shock) = `settings.ic`;
        the expected log return is `settings.ic * signal * own_sd`. Prices are mid prices here.
    """
    for month in _months(settings, clock):
        table = _table(month, settings, ("signal", "own_sd", "sd", "shock"), _causes)
        yield table.with_columns(pl.col("signal").fill_nan(None))


@dataclass(frozen=True)
class _Month:
    """The stretches of trading of one month, and the market that trades them, once and in order."""

    stretches: list[Stretch]
    market: Iterator[Traded]


def _months(settings: SimulateSettings, clock: Clock) -> Iterator[_Month]:
    table = segments(clock)
    full_session, never_closed = table.select(
        pl.col("session_bars").max(), never_closed=(pl.col("open").shift(-1) == pl.col("close")).all()
    ).row(0)
    gap = (
        pl.when(pl.col("segment") == pl.col("segment").shift(1))
        .then(pl.lit("none"))
        .when(pl.col("first_bar") > 0)
        .then(pl.lit("lunch"))
        .otherwise(pl.lit("night"))
    )
    wanted = table.with_columns(
        gap=gap, bars=((pl.col("close") - pl.col("open")).dt.total_microseconds() + BAR_US - 1) // BAR_US
    ).filter(pl.col("session").is_between(settings.start, settings.end))
    if wanted.is_empty():
        raise CalendarError(
            f"simulated market by calendar {clock}",
            expected=f"a session between {table['session'][0]} and {table['session'][-1]}",
            got=f"none from {settings.start} to {settings.end}",
            do="set data.simulate.start and data.simulate.end so that a session lies between",
        )
    profile, state = open_market(settings, full_session=full_session, round_the_clock=never_closed)
    rows = wanted.select("session", pl.col("open").to_physical(), "bars", "first_bar", "session_bars", "gap").group_by(
        pl.col("session").dt.truncate("1mo").alias("month"), maintain_order=True
    )
    for _, part in rows:
        stretches = [Stretch(*row) for row in part.select(pl.exclude("session", "month")).iter_rows()]
        yield _Month(stretches, (trade(stretch, state, profile, settings) for stretch in stretches))


def _bars(traded: Traded) -> tuple[Floats, ...]:
    return (*traded.prices, traded.volume_TS)


def _causes(traded: Traded) -> tuple[Floats, ...]:
    signal_TS = np.where(traded.known_T[:, None], traded.signal_TS, np.nan)
    return signal_TS, traded.own_sd_TS, traded.sd_TS, traded.shock_TS


def _table(
    month: _Month, settings: SimulateSettings, names: Sequence[str], pick: Callable[[Traded], tuple[Floats, ...]]
) -> pl.DataFrame:
    """Let the month be traded; symbol, ts and what `pick` takes of it under `names`, sorted by symbol and ts."""
    symbols = settings.symbols
    ts = np.concatenate([stretch.open_us + BAR_US * np.arange(stretch.bars) for stretch in month.stretches])
    values = np.empty((len(names), symbols, ts.size))
    done = 0
    for traded in month.market:
        for spot, piece_TS in enumerate(pick(traded)):
            values[spot, :, done : done + len(piece_TS)] = piece_TS.T
        done += len(traded.known_T)
    width = max(3, len(str(symbols)))
    texts = pl.Series("symbol", [f"SIM{number:0{width}d}" for number in range(1, symbols + 1)], dtype=pl.String)
    return pl.DataFrame(
        [
            texts.gather(np.repeat(np.arange(symbols), ts.size)),
            pl.Series("ts", np.tile(ts, symbols)).cast(TS),
            *(pl.Series(name, values[spot].ravel()) for spot, name in enumerate(names)),
        ]
    )
