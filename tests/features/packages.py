"""In: the code of a module. Out: a distribution on the path that declares features, as pip leaves it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TILT = """
import polars as pl
from klinepred.features.spec import Feature

def features():
    mean = pl.col("close").rolling_mean(4)
    return (
        Feature("tilt__mean_4", "c / mean c of 4 - 1", pl.col("close") / mean - 1.0, 4, 4, "made for tests"),
        Feature("tilt__body", "c - o", pl.col("close") - pl.col("open"), 1, 1, "made for tests"),
    )

one = Feature("tilt__range", "h - l", pl.col("high") - pl.col("low"), 1, 1, "made for tests")
"""


def install(
    folder: Path,
    patch: pytest.MonkeyPatch,
    *,
    code: str = TILT,
    points: str = "tilt = tiltpack:features\nrange = tiltpack:one",
    name: str = "tilt-pack",
    version: str = "1.2",
) -> None:
    """Put `tiltpack.py` and its dist-info into `folder`, and `folder` at the head of the path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tiltpack.py").write_text(code)
    facts = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    facts.mkdir(exist_ok=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (facts / "entry_points.txt").write_text(f"[klinepred.features]\n{points}\n")
    patch.delitem(sys.modules, "tiltpack", raising=False)
    patch.syspath_prepend(str(folder))
