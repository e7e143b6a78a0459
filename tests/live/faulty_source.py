"""In: a seed. Out: a stored history, the bars after it as a faulty source gives them, a model of random weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import polars as pl

import klinepred as kp
from klinepred.bars.delivery import Delivery
from klinepred.bars.ingest import take_in
from klinepred.bars.sources.simulate import simulate
from klinepred.bars.tally import Tally
from klinepred.calendar import Clock
from klinepred.errors import SourceError
from klinepred.model.bundle import ModelBundle
from klinepred.model.lstm import build_network
from klinepred.schema import BAR
from klinepred.settings import DatasetSettings, DataSettings, ModelSettings, SimulateSettings
from tests.serving.market import random_bundle

DATA = DataSettings(source="yahoo", symbols=("SIM001",))
BEGIN = datetime(2026, 4, 24, 19, 40, tzinfo=UTC)
"""A Friday's last twenty minutes; what follows is Monday's."""
END = datetime(2026, 4, 27, 14, 15, tzinfo=UTC)


def bars(symbols: int = 6) -> pl.DataFrame:
    """Raw bars of the simulated market to the end of that Monday."""
    settings = SimulateSettings(symbols=symbols, start=date(2026, 3, 23), end=date(2026, 4, 27))
    return pl.concat([one.frame for one in simulate(settings, clock=Clock("XNYS"))]).sort("symbol", "ts")


def store(root: Path, rows: pl.DataFrame) -> kp.Workspace:
    """A workspace with these bars."""
    space = kp.Workspace(root)
    take_in([Delivery(rows, "made")], DATA, space, now=datetime(2026, 5, 1, tzinfo=UTC), tally=Tally())
    return space


def model(symbols: tuple[str, ...], *, dataset: DatasetSettings, flatten: int = 0) -> ModelBundle:
    """Random weights behind the 50 features; the last symbol is not of its universe."""
    base = random_bundle(kp.load_pipeline("demo"), {"run_id": "", "created": "2026-05-01T00:00:00Z"})
    settings = ModelSettings(preset="none", hidden=8, layers=2, head=4, dropout=0.0, flatten=flatten)
    universe = symbols[:-1]
    return replace(
        base,
        model=settings,
        network=build_network(settings, inputs=len(base.feature_names)).eval(),
        dataset=dataset,
        universe=universe,
        calendars=dict.fromkeys(universe, "XNYS"),
        name="random",
    )


@dataclass
class FaultySource:
    """Gives each bar once it has closed, unless a fault comes between.

    Faults, drawn anew for each close: a bar that never comes, one that comes some closes later, a symbol that stays
    away for a while and then comes with or without what it missed, a bar sent twice, an earlier bar with other values,
    a source that cannot be reached.
    """

    rows: pl.DataFrame
    rng: np.random.Generator
    rate: float
    given: datetime = BEGIN
    due: list[tuple[datetime, pl.DataFrame]] = field(default_factory=list)
    sent: list[pl.DataFrame] = field(default_factory=list)
    happened: set[str] = field(default_factory=set)

    def __call__(self, moment: datetime) -> Iterator[Delivery]:
        """What comes at a moment."""
        if self._strikes("unreachable"):
            raise SourceError("the source", expected="an answer", got="none", do="wait")
        fresh = self.rows.filter(pl.col("ts") + BAR > self.given, pl.col("ts") + BAR <= moment)
        self.given = moment
        now = []
        for part in fresh.partition_by("symbol", maintain_order=True):
            if self._strikes("missing"):
                continue
            if self._strikes("late"):
                self.due.append((moment + int(self.rng.integers(1, 5)) * BAR, part))
                continue
            now.append(part)
        now += [part for when, part in self.due if when <= moment]
        self.due = [(when, part) for when, part in self.due if when > moment]
        if self.sent and self._strikes("revised"):
            old = self.sent[int(self.rng.integers(len(self.sent)))]
            up = 1.0 + 0.002 * self.rng.random()
            now.append(old.with_columns(pl.col("open", "high", "low", "close") * up))
        if self.sent and self._strikes("twice"):
            now.append(self.sent[int(self.rng.integers(len(self.sent)))])
        if self._strikes("absent"):
            name = str(self.rng.choice(self.rows["symbol"].unique().sort().to_numpy()))
            kept = [part for part in now if part.item(0, "symbol") != name]
            if self.rng.random() < 0.5:
                self.due += [(moment + 4 * BAR, part) for part in now if part.item(0, "symbol") == name]
            now = kept
        self.sent += now
        if not now:
            raise SourceError("the source", expected="bars", got="none", do="wait")
        table = pl.concat(now).unique(["symbol", "ts"], keep="last", maintain_order=True).sort("symbol", "ts")
        yield Delivery(table, "made")

    def _strikes(self, fault: str) -> bool:
        hit = bool(self.rng.random() < self.rate)
        if hit:
            self.happened.add(fault)
        return hit
