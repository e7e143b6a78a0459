"""In: sources that are late, silent or away. Out: follow waits as long as it should, and never ends by itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars.report import IngestReport, SymbolReport
from klinepred.calendar import Clock
from klinepred.errors import SourceError, UsageError
from klinepred.live.follow import Follower, Plan
from klinepred.live.watch import ReplayWatch
from klinepred.paths import Workspace
from klinepred.prediction import Forecast
from klinepred.schema import BAR, TS

START = datetime(2026, 6, 26, 19, 50, tzinfo=UTC)
"""A Friday, ten minutes before the end."""


@dataclass
class Market:
    """When each bar of each symbol can be had, and what was asked and shown."""

    symbols: tuple[str, ...] = ("A", "B", "C")
    comes: dict[tuple[str, datetime], timedelta | None] = field(default_factory=dict)
    away: list[tuple[datetime, datetime]] = field(default_factory=list)
    asked: list[datetime] = field(default_factory=list)
    shown: list[tuple[datetime, list[str]]] = field(default_factory=list)
    rested: int = 0
    newest: dict[str, datetime] = field(default_factory=dict)
    version: int = 0
    now: datetime = START

    def feed(self, moment: datetime) -> IngestReport:
        self.asked.append(moment)
        self.now = moment
        if any(low <= moment < high for low, high in self.away):
            raise SourceError("the source", expected="an answer", got="no network", do="see whether it is up")
        return IngestReport(0, tuple(SymbolReport(name, "ok") for name in self.symbols))

    def refresh(self, moment: datetime) -> None:
        if any(low <= self.now < high for low, high in self.away):
            return
        for name in self.symbols:
            stamps = [START - BAR + n * BAR for n in range(3)] + [datetime(2026, 6, 29, 13, 30, tzinfo=UTC)]
            for ts in stamps:
                wait = self.comes.get((name, ts), timedelta(0))
                if ts + BAR <= moment and wait is not None and ts + BAR + wait <= self.now:
                    self.newest[name] = max(ts, self.newest.get(name, ts))

    def forecast(self, moment: datetime) -> Forecast:
        rows = pl.DataFrame(
            {"symbol": [*self.newest], "bar_ts": pl.Series([*self.newest.values()], dtype=TS), "note": ""}
        ).sort("symbol")
        return Forecast(rows, {}, rows.select("symbol"))

    def rest(self) -> None:
        self.rested += 1

    def sink(self, rows: pl.DataFrame, _prices: pl.DataFrame, _version: int) -> None:
        self.shown.append((self.now, rows["symbol"].to_list()))


@contextmanager
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    logger, lines = logging.getLogger("klinepred.live"), list[str]()

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    ear = Ear()
    logger.addHandler(ear)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(ear)
        logger.setLevel(level)


def run(market: Market, tmp_path: Path, *, until: datetime, patience: float = 60.0) -> None:
    plan = Plan(
        clocks=dict.fromkeys(market.symbols, Clock("XNYS")),
        universe=market.symbols,
        delay=timedelta(seconds=10),
        patience=timedelta(seconds=patience),
        until=until,
    )
    Follower(plan, Workspace(tmp_path), market, market.feed, ReplayWatch(START), market.sink).run()


def after(close: datetime, seconds: float) -> datetime:
    return close + timedelta(seconds=seconds)


def test_each_bar_is_shown_ten_seconds_after_its_close_over_a_weekend(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    market = Market()
    with heard(caplog) as lines:
        run(market, tmp_path, until=datetime(2026, 6, 29, 13, 35, tzinfo=UTC))
    monday = datetime(2026, 6, 29, 13, 35, tzinfo=UTC)
    times = [START, after(START + BAR, 10), after(START + 2 * BAR, 10), after(monday, 10)]
    assert market.shown == [(time, ["A", "B", "C"]) for time in times]
    assert market.asked == times
    assert [line for line in lines if "closed" in line] == [
        "the market is closed: the next bar ends at 2026-06-29 13:35Z"
    ]


def test_a_late_symbol_is_waited_for_and_all_are_shown_at_once(tmp_path: Path) -> None:
    market = Market(comes={("B", START): timedelta(seconds=20)})
    run(market, tmp_path, until=START + BAR)
    assert market.shown[1:] == [(after(START + BAR, 24), ["A", "B", "C"])]  # asked after 10, 12, 16 and 24 seconds
    assert [round((time - START - BAR).total_seconds()) for time in market.asked[1:]] == [10, 12, 16, 24]


def test_who_is_later_than_patience_is_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    market = Market(comes={("B", START): timedelta(seconds=200)})
    with heard(caplog) as lines:
        run(market, tmp_path, until=START + 2 * BAR)
    assert [names for _, names in market.shown] == [["A", "B", "C"], ["A", "C"], ["A", "B", "C"]]
    assert market.shown[1][0] == after(START + BAR, 60)
    assert "no bar that ends at 2026-06-26 19:55Z of B" in lines


def test_a_symbol_that_goes_on_lacking_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    market = Market(comes={("B", START + n * BAR): None for n in range(3)})
    with heard(caplog) as lines:
        run(market, tmp_path, until=START + 2 * BAR)
    assert [line for line in lines if "no bar that ends at" in line] == ["no bar that ends at 2026-06-26 19:55Z of B"]


def test_without_any_bar_it_goes_on_asking_until_the_next_is_due(tmp_path: Path) -> None:
    everyone = {(name, START): None for name in ("A", "B", "C")}
    market = Market(comes={**everyone})
    run(market, tmp_path, until=START + 2 * BAR)
    waits = [round((time - START - BAR).total_seconds()) for time in market.asked[1:-1]]
    assert waits == [10, 12, 16, 24, 40, 72, 132, 192, 252]
    assert [names for _, names in market.shown] == [["A", "B", "C"]] * 2  # nothing for the bar that never came


def test_an_unreachable_source_never_ends_it_and_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    market = Market(away=[(START + BAR, after(START + BAR, 100))])
    with heard(caplog) as lines:
        run(market, tmp_path, until=START + BAR)
    assert market.shown[1:] == [(after(START + BAR, 132), ["A", "B", "C"])]
    assert sum("no network" in line for line in lines) == 1


def test_a_symbol_that_stays_away_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    friday = [START + n * BAR for n in range(-1, 2)]
    market = Market(comes={("C", ts): None for ts in [*friday, datetime(2026, 6, 29, 13, 30, tzinfo=UTC)]})
    run(market, tmp_path, until=datetime(2026, 6, 29, 13, 35, tzinfo=UTC))
    delays = [
        round((time - close).total_seconds())
        for (time, _), close in zip(
            market.shown[1:], [START + BAR, START + 2 * BAR, datetime(2026, 6, 29, 13, 35, tzinfo=UTC)], strict=True
        )
    ]
    assert delays[-1] == 10


def test_a_source_that_cannot_be_asked_at_all_is_an_error(tmp_path: Path) -> None:
    market = Market()

    def feed(moment: datetime) -> IngestReport:
        raise UsageError("--symbols", expected="one", got="none", do="add some")

    plan = Plan({"A": Clock("XNYS")}, ("A",), delay=timedelta(0), patience=timedelta(0))
    follower = Follower(plan, Workspace(tmp_path), market, feed, ReplayWatch(START), market.sink)
    with pytest.raises(UsageError, match="--symbols"):
        follower.run()
