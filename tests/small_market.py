"""In: settings of a training, an empty folder. Out: a workspace with a small simulated market, its command lines."""

from __future__ import annotations

from pathlib import Path

from klinepred.cli import main

MARKET = """
name = "small"
[data]
source = "simulate"
calendar = "XNYS"
[data.simulate]
seed = 7
symbols = 6
start = 2026-01-02
end = 2026-03-31
ic = 0.2
"""
NETWORK = """
[model]
preset = "lstm-small"
hidden = 8
layers = 1
[train]
batch = 16
patience = 0
device = "cpu"
"""


def small_space(folder: Path, *, train: str = "") -> Path:
    """The folder with six symbols of a quarter of a year; `train`: more lines for the settings of the training."""
    (folder / "small.toml").write_text(MARKET + NETWORK + train, encoding="utf-8")
    assert main(["ingest", "-q", "-p", str(folder / "small.toml"), "-w", str(folder)]) == 0
    return folder


def train_words(space: Path, *more: str) -> list[str]:
    """Arguments of Python that train there."""
    return ["-m", "klinepred", "train", "-p", str(space / "small.toml"), "-w", str(space), *more]
