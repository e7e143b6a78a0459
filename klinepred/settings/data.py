"""In: nothing. Out: settings of the bars: source, clock, the simulated market."""

from __future__ import annotations

from datetime import date
from typing import Literal

from pydantic import Field, model_validator

from klinepred.settings.fields import Day, Settings, Texts


class SimulateSettings(Settings):
    """The simulated market (`klinepred.bars.sources.simulate`); model and sources in `docs/simulated-market.md`."""

    seed: int = Field(7, ge=0)
    symbols: int = Field(12, ge=1, le=100_000)
    start: Day = date(2026, 1, 2)
    end: Day = date(2026, 6, 30)
    """Last session, inclusive."""
    ic: float = Field(0.06, ge=0.0, le=0.5)
    """Information coefficient planted in the next bar: correlation of the best forecast with the return; 0 = noise."""
    bounce: float = Field(0.0, ge=0.0, le=0.01)
    """Half bid-ask spread as a share of the price; closes jump between bid and ask."""
    decay: float = Field(0.5, ge=0.0, le=0.95)
    """Weight of a bar in the planted signal relative to the bar after it."""
    volume_tilt: float = Field(0.5, ge=0.0, le=2.0)
    """How much more a bar of abnormal volume (+1 standard deviation) counts in the planted signal; 0 = linear."""
    volatility: float = Field(0.018, ge=1e-4, le=0.2)
    """Standard deviation of the daily log return, close to close, of the average symbol."""
    market: float = Field(0.25, ge=0.0, le=0.9)
    """Share of that variance that the common market factor brings; 0 with a single symbol."""
    overnight: float = Field(0.25, ge=0.0, le=0.9)
    """Share of that variance that falls on the hours between two sessions; 0 where trading never stops."""
    zero_volume: float = Field(0.0, ge=0.0, le=0.5)
    """Share of bars, at random, whose volume is 0 (prices move all the same, as Yahoo has it)."""

    @model_validator(mode="after")
    def _in_order(self) -> SimulateSettings:
        if self.start > self.end:
            raise ValueError(f"start {self.start} must not lie after end {self.end}")
        return self


class DataSettings(Settings):
    """Which bars, from where, by which clock."""

    source: Literal["yahoo", "files", "exchange", "simulate"] = "yahoo"
    exchange: str | None = None
    """Name that ccxt gives the exchange, such as "binance" (source = "exchange")."""
    symbols: Texts = ()
    calendar: str = "XNYS"
    hours: Literal["regular", "extended"] = "regular"
    tz: str | None = None
    stamp: Literal["open", "close"] | None = None
    """Stamps of files are opens or ends of bars; None = as the vendor writes them, else opens."""
    vendor: str = "auto"
    start: Day | None = None
    end: Day | None = None
    paths: Texts = ()
    rescale: Literal["confirmed", "always", "never"] = "confirmed"
    """When stored bars follow received ones to another basis (a split, pence for pounds): where the source itself tells
    of the split, where the overlap shows it plainly, or not at all; otherwise the symbol is refused."""
    simulate: SimulateSettings = SimulateSettings()

    @model_validator(mode="after")
    def _in_order(self) -> DataSettings:
        if self.start is not None and self.end is not None and self.start > self.end:
            raise ValueError(f"start {self.start} must not lie after end {self.end}")
        return self
