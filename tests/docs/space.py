"""In: an empty folder. Out: a workspace in which the commands of the pages work: small bars, files, trained models."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import polars as pl

import klinepred as kp
from klinepred.cli import main
from tests.heard import Heard, listening

NOW: Final = "2026-06-30T22:00:00Z"
NAMES: Final = ("AAPL", "MSFT", "NVDA", "AMZN", "META", "SPY")
SIMULATED: Final = """
name = "demo"
[data]
source = "simulate"
[data.simulate]
symbols = 6
start = 2026-04-01
end = 2026-06-30
"""
FILES: Final = f"""
name = "us-equities-5m"
[data]
source = "files"
paths = ["bars.parquet"]
symbols = {list(NAMES)}
"""
SMALL: Final = """
[model]
preset = "lstm-small"
hidden = 8
layers = 1
[train]
epochs = 1
batch = 16
device = "cpu"
[evaluate]
bootstrap = 50
"""


RUN: set[str] = set()
"""What has been run: a line that several pages share is run once."""
HEARD: dict[str, Heard] = {}
"""What was heard of the commands that made the workspace, by their first word."""


@dataclass(frozen=True)
class Prepared:
    """The workspace, and the name of the model of each pipeline."""

    root: Path
    models: dict[str, str]


def prepare(root: Path) -> Prepared:
    """Six simulated symbols, the same bars under names of stocks in a file, a champion of each of two pipelines.

    To be called with `root` as the present folder.
    """
    (root / "pipelines").mkdir()
    for text in (SIMULATED, FILES):
        settings = text + SMALL
        name = settings.split('"')[1]
        (root / "pipelines" / f"{name}.toml").write_text(settings, encoding="utf-8")
    _run("ingest", "-p", "demo")
    _files(root)
    _run("ingest")
    models = {}
    for name in ("us-equities-5m", "demo"):
        _run("train", "-p", name)
        (made,) = (path.name for path in (root / "models" / "trained").iterdir() if path.name.startswith(f"{name}-"))
        _run("evaluate", *([] if name == "us-equities-5m" else ["-p", name]))
        _run("models", "promote", made)
        models[name] = made
    _run("predict")
    return Prepared(root, models)


def _run(*words: str) -> None:
    clock = () if words[0] in ("train", "models") else ("--now", NOW)
    with listening() as heard:
        assert main([*words, "-q", *clock]) == 0, words
    HEARD.setdefault(words[0], Heard()).pieces += heard.pieces
    RUN.add(" ".join(("klinepred", *words)))


def _files(root: Path) -> None:
    named = dict(zip([f"SIM{number:03d}" for number in range(1, 7)], NAMES, strict=True))
    bars = kp.scan_bars(kp.Workspace(root)).drop("calendar").collect()
    bars = bars.with_columns(pl.col("symbol").cast(pl.String).replace_strict(named))
    bars.write_parquet(root / "bars.parquet")
    with zipfile.ZipFile(root / "bars.zip", "w") as archive:
        archive.write(root / "bars.parquet", "bars.parquet")
    spy_csv(root, bars, ends=False)
    coin = pl.DataFrame({"k": range(288)}).select(
        open_time=(pl.lit(1_780_272_000_000) + pl.col("k") * 300_000),  # 1 June 2026, 00:00 UTC
        open=pl.lit(100.0),
        high=pl.lit(101.0),
        low=pl.lit(99.0),
        close=pl.lit(100.5),
        volume=pl.lit(3.0),
        close_time=(pl.lit(1_780_272_299_999) + pl.col("k") * 300_000),
        quote=pl.lit(300.0),
        trades=pl.lit(5),
        taker=pl.lit(1.0),
        taker_quote=pl.lit(100.0),
        ignore=pl.lit(0),
    )
    (root / "binance").mkdir()
    coin.write_csv(root / "binance" / "BTCUSDT-5m-2026-06-01.csv", include_header=False)


def spy_csv(root: Path, bars: pl.DataFrame, *, ends: bool) -> None:
    """SPY.csv in the time of New York, without a zone; its stamps are opens, or ends of bars."""
    late = timedelta(minutes=5 if ends else 0)
    local = (pl.col("ts") + late).dt.convert_time_zone("America/New_York").dt.strftime("%Y-%m-%d %H:%M:%S")
    spy = bars.filter(pl.col("symbol") == "SPY").with_columns(local.alias("ts"))
    spy.drop("symbol").write_csv(root / "SPY.csv")
