"""In: stores whose symbols came at different times. Out: what a pipeline says of its universe before it trains."""

from __future__ import annotations

import logging
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars.ingest import ingest
from klinepred.bars.store import simulated_symbols
from klinepred.config import load_pipeline
from klinepred.paths import Workspace
from klinepred.pipeline import build_dataset
from klinepred.pipeline import data as stored_data
from klinepred.settings import DataSettings
from tests.bars.made import NOW, from_files, utc, walk

SYMBOLS = ("A", "B", "C", "D", "LATE")


def _remarks(space: Workspace, caplog: pytest.LogCaptureFixture) -> list[str]:
    run = load_pipeline("us-equities-5m", overrides=[f"data.symbols={list(SYMBOLS)!r}"], workspace=space)
    with caplog.at_level(logging.WARNING, logger="klinepred"):
        build_dataset(run, space)
    return [record.getMessage() for record in caplog.records if record.name == "klinepred.pipeline"]


def test_symbols_chosen_later_are_named_before_training_unless_they_are_simulated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = walk(SYMBOLS, start="2026-04-01", days=80).filter(
        (pl.col("symbol") != "LATE") | (pl.col("ts") >= utc("2026-04-27"))
    )
    space = Workspace(tmp_path)
    frame.write_parquet(tmp_path / "bars.parquet")
    ingest(from_files(tmp_path / "bars.parquet"), space, now=NOW)
    (line,) = _remarks(space, caplog)
    assert line.startswith("1 of the 5 symbols came after the history began")
    assert "LATE 2026-0" in line

    monkeypatch.setattr(stored_data, "simulated_symbols", lambda space: set(SYMBOLS))
    caplog.clear()
    assert _remarks(space, caplog) == []


def test_the_store_knows_which_symbols_are_simulated(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    walk(["REAL"]).write_parquet(tmp_path / "bars.parquet")
    ingest(from_files(tmp_path / "bars.parquet"), space, now=NOW)
    table = {"source": "simulate", "start": "2026-05-28", "end": "2026-05-30", "simulate": {"symbols": 2}}
    ingest(DataSettings.model_validate(table), space, now=NOW)
    assert simulated_symbols(space) == {"SIM001", "SIM002"}
