"""In: nothing. Out: a workspace with a simulated market and a model of random weights that learned raw returns."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

import polars as pl

import klinepred as kp
from klinepred.bars.ingest import ingest
from klinepred.bars.sources.simulate import simulate
from klinepred.calendar import Clock
from klinepred.dataset.split import Split
from klinepred.model.bundle import ModelBundle, save_bundle
from klinepred.schema import BAR_SCHEMA
from klinepred.settings import DatasetSettings
from tests.bars.made import from_files, utc
from tests.serving.market import random_bundle

RUN = "b" * 32
SPLIT = Split(date(2026, 3, 20), date(2026, 3, 31), date(2026, 4, 10))
END = "2026-04-30T22:00"


def simulated() -> pl.DataFrame:
    """Three symbols from February to April 2026."""
    settings = kp.load_pipeline("demo").data.simulate.model_copy(
        update={"symbols": 3, "start": date(2026, 2, 2), "end": date(2026, 4, 30)}
    )
    return pl.concat([one.frame for one in simulate(settings, clock=Clock("XNYS"))]).sort("symbol", "ts")


def doubled(bars: pl.DataFrame, *, since: datetime) -> pl.DataFrame:
    """The same market with twice the volatility from a moment on."""
    later = pl.col("ts") >= since
    base = pl.col("open").filter(later).first().over("symbol")
    prices = ("open", "high", "low", "close")
    return bars.with_columns(
        pl.when(later).then(base * (pl.col(name) / base) ** 2).otherwise(name).alias(name) for name in prices
    )


def open_market(root: Path, bars: pl.DataFrame) -> tuple[kp.Workspace, ModelBundle]:
    """A store of these bars, and the model on its shelf."""
    space = kp.Workspace(root)
    take_in(space, bars)
    bundle = replace(
        random_bundle(kp.load_pipeline("demo"), {"run_id": RUN, "created": "2026-04-11T00:00:00Z"}),
        dataset=DatasetSettings(target="raw"),
        split=SPLIT,
    )
    save_bundle(bundle, space.trained / bundle.name)
    return space, bundle


def take_in(space: kp.Workspace, bars: pl.DataFrame) -> None:
    """Ingest bars from a file."""
    space.root.mkdir(parents=True, exist_ok=True)
    path = space.root / "bars.parquet"
    bars.select(BAR_SCHEMA.keys()).write_parquet(path)
    ingest(from_files(path), space, now=utc(END))
