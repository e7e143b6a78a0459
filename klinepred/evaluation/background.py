"""In: a model's dataset, its run, the store. Out: `Background`: what a reader of the verdict must know of both."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import polars as pl

from klinepred import __version__

CURVES: Final = ("train_loss", "val_loss", "val_ic", "val_rank_ic")
"""Metrics of a run by epoch that the report draws."""
RECORD: Final = ("gradient/norm", "gradient/norm_clipped", "amp/loss_scale", "amp/skipped_steps", "step/loss")
"""Metrics by optimiser step."""
TAGS: Final = ("precision", "precision_reason", "device", "precision_fallback")
"""Tags of a run that the report quotes."""
TICKS: Final = 8
"""Months named on the time line, at most."""
PACKAGES: Final = ("torch", "numpy", "polars", "deltalake", "mlflow", "scikit-learn", "exchange_calendars")

Series = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Background:
    """What stands beside the scores in a report; what is not known is empty.

    Attributes
    ----------
    config, provenance
        The resolved pipeline; the bundle's: run, versions, device, store version …
    history
        By metric name (`CURVES`, `RECORD`), pairs of epoch or step and value.
    tags
        Of the run (`TAGS`).
    parts
        Of the dataset, as `klinepred.dataset.describe.describe` gives them.
    quality
        Of the stored bars, one row a symbol, as `klinepred.bars.health.Health.symbols`.
    remarks
        Sentences on that quality.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    history: Mapping[str, Series] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    parts: pl.DataFrame | None = None
    quality: pl.DataFrame | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stretch:
    """A part of the dataset on the time line: where it begins and how long it is, in percent of the whole line."""

    name: str
    left: float
    width: float
    first: date
    last: date
    sessions: int
    labelled: int
    removed: int


@dataclass(frozen=True)
class TimeLine:
    """The parts in time order, and months to read them by: (percent from the left, 2026-03)."""

    stretches: tuple[Stretch, ...]
    ticks: tuple[tuple[float, str], ...]


def time_line(parts: pl.DataFrame | None) -> TimeLine | None:
    """Where the parts of a dataset lie; None where there are none. A day is a day, also one without trading."""
    if parts is None:
        return None
    rows = parts.filter((pl.col("part") != "outside") & pl.col("first").is_not_null()).to_dicts()
    if not rows:
        return None
    begin = min(row["first"] for row in rows)
    days = (max(row["last"] for row in rows) - begin).days + 1
    found = tuple(
        Stretch(
            name=row["part"],
            left=100.0 * (row["first"] - begin).days / days,
            width=100.0 * ((row["last"] - row["first"]).days + 1) / days,
            first=row["first"],
            last=row["last"],
            sessions=row["sessions"],
            labelled=row["labelled"],
            removed=row["purged"] + row["embargoed"],
        )
        for row in rows
    )
    months = pl.date_range(begin.replace(day=1), begin + timedelta(days=days - 1), "1mo", eager=True).to_list()
    shown = months[1 :: max(1, -(-len(months) // TICKS))]
    return TimeLine(found, tuple((100.0 * (day - begin).days / days, f"{day:%Y-%m}") for day in shown))


def versions() -> dict[str, str]:
    """Of what evaluated: klinepred, Python, the machine's system, packages that the numbers rest on."""
    found = {"klinepred": __version__, "python": platform.python_version(), "system": platform.platform(terse=True)}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
