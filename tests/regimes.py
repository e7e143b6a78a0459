"""In: nothing. Out: a market that is noise, then louder and predictable; settings small enough for seconds."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from klinepred.bars.sources.simulate import simulate
from klinepred.calendar import Clock
from klinepred.settings import SimulateSettings

CALM, CALM_LATER, CHANGED = "2026-03-06T22:00:00Z", "2026-03-20T22:00:00Z", "2026-05-08T22:00:00Z"
"""Clocks: in the noise, later in the noise (of `noise` alone), nine weeks into the other regime."""
SETTINGS = (
    'data.source="files"',
    'data.calendar="XNYS"',
    "model.preset=lstm-small",
    "model.hidden=16",
    "model.layers=1",
    "train.epochs=3",
    "train.batch=16",
    "train.lr=1e-2",
    "train.ema=0.0",
    "train.device=cpu",
    "evaluate.bootstrap=100",
    "dataset.split.train=0.6",
)


def noise(path: Path, *, end: str = "2026-03-20") -> Path:
    """Bars of six symbols from January on, without a signal."""
    _regime("2026-01-05", end, ic=0.0, volatility=0.012, seed=3).write_parquet(path)
    return path


def change(path: Path) -> Path:
    """The same to 2026-03-06, then, from where the prices stood, bars that move more and can be predicted."""
    calm = _regime("2026-01-05", "2026-03-06", ic=0.0, volatility=0.012, seed=3)
    loud = _regime("2026-03-09", "2026-05-08", ic=0.12, volatility=0.03, seed=4)
    last = calm.group_by("symbol", maintain_order=True).agg(last=pl.col("close").last())
    first = loud.group_by("symbol", maintain_order=True).agg(first=pl.col("open").first())
    rate = last.join(first, on="symbol").select("symbol", rate=pl.col("last") / pl.col("first"))
    prices = pl.col("open", "high", "low", "close") * pl.col("rate")
    loud = loud.join(rate, on="symbol", maintain_order="left").with_columns(prices).drop("rate")
    pl.concat([calm, loud]).sort("symbol", "ts").write_parquet(path)
    return path


def _regime(start: str, end: str, *, ic: float, volatility: float, seed: int) -> pl.DataFrame:
    table = {"seed": seed, "symbols": 6, "start": start, "end": end, "ic": ic, "volatility": volatility}
    parts = simulate(SimulateSettings.model_validate(table), clock=Clock("XNYS", "regular"))
    return pl.concat([part.frame for part in parts]).sort("symbol", "ts")
