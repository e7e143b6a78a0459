"""In: pipelines. Out: TOML that reads back to the same settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from klinepred.config import load_pipeline, pipeline_names
from klinepred.training.resolved import pipeline_toml


@pytest.mark.parametrize("name", pipeline_names())
def test_the_resolved_pipeline_reads_back_equal(name: str, tmp_path: Path) -> None:
    overrides = ["train.lr=3e-7", 'description=a "quoted" \\ nº 1', "dataset.split.train_end=2026-03-01"]
    run = load_pipeline(name, overrides=[*overrides, "dataset.split.validation_end=2026-04-01"])
    (tmp_path / "config.toml").write_text(pipeline_toml(run), encoding="utf-8")
    assert load_pipeline(tmp_path / "config.toml") == run
