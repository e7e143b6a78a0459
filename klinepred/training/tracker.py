"""In: what happens while a network learns. Out: the protocol of who records it, `Tracker`, and one that does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from klinepred.model.bundle import ModelBundle
from klinepred.settings import Pipeline

if TYPE_CHECKING:
    from klinepred.training.data_note import DataNote

RunStatus = Literal["FINISHED", "FAILED", "KILLED"]


class Metric(NamedTuple):
    """One number of a run. `step` counts optimiser steps or epochs, from 1; `time_ms` is Unix time."""

    name: str
    value: float
    step: int
    time_ms: int


class Tracker(Protocol):
    """Who keeps the record of a run."""

    @property
    def pipeline(self) -> Pipeline | None:
        """The pipeline the run is recorded under, if known."""

    @property
    def checkpoint(self) -> Path | None:
        """Where the checkpoint of the started run belongs; None = nowhere."""

    def start(
        self,
        pipeline: Pipeline | None,
        *,
        params: Mapping[str, str | float],
        tags: Mapping[str, str],
        resume: str | None,
    ) -> dict[str, Any]:
        """Open the run, or take up the run with id `resume`; the answer goes into the bundle's provenance."""

    def member(self, number: int) -> Tracker:
        """Who keeps the record of member `number` (from 1) of the ensemble whose run is open here."""

    def log_metrics(self, metrics: Sequence[Metric]) -> None:
        """Record numbers, now or soon, in this order; those that are not finite are left out."""

    def settle(self) -> None:
        """Return when all numbers so far are recorded."""

    def log_folder(self, folder: Path, *, under: str) -> None:
        """Keep all files of `folder` as artifacts in the folder `under`."""

    def log_data(self, note: DataNote) -> None:
        """Record what the run learns from."""

    def log_model(self, bundle: ModelBundle, folder: Path) -> None:
        """Keep the trained `bundle`, saved in `folder`, as what the run has made."""

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set or replace tags of the run."""

    def end(self, status: RunStatus) -> None:
        """Close the run."""


class NoTracker:
    """Keeps nothing."""

    pipeline: Pipeline | None = None
    checkpoint: Path | None = None

    def start(
        self,
        pipeline: Pipeline | None,
        *,
        params: Mapping[str, str | float],
        tags: Mapping[str, str],
        resume: str | None,
    ) -> dict[str, Any]:
        return {}

    def member(self, number: int) -> Tracker:
        return NoTracker()

    def log_metrics(self, metrics: Sequence[Metric]) -> None:
        return None

    def settle(self) -> None:
        return None

    def log_folder(self, folder: Path, *, under: str) -> None:
        return None

    def log_data(self, note: DataNote) -> None:
        return None

    def log_model(self, bundle: ModelBundle, folder: Path) -> None:
        return None

    def set_tags(self, tags: Mapping[str, str]) -> None:
        return None

    def end(self, status: RunStatus) -> None:
        return None
