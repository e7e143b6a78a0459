"""In: a walk-forward. Out: the record of its models; each bar predicted by the one that had not seen it."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klinepred.errors import ModelError
from klinepred.paths import Workspace, write_atomic
from klinepred.pipeline.data import dataset_of

if TYPE_CHECKING:
    import polars as pl


log = logging.getLogger("klinepred.pipeline")

ENDING: Final = ".walk-forward.json"
FORMAT: Final = 1


@dataclass(frozen=True)
class FoldModel:
    """The model of one fold, as the record names it.

    Attributes
    ----------
    model
        Name on the workspace's shelf.
    split
        The fold's dates, as `klinepred.dataset.split.Split.to_dict` has them.
    labels
        Labels of each part.
    """

    fold: int
    model: str
    run_id: str
    split: dict[str, Any]
    labels: dict[str, int]


@dataclass(frozen=True)
class WalkForward:
    """A walk-forward: who predicts which test span.

    Attributes
    ----------
    run_id
        The MLflow run that those of the folds are nested in.
    folds
        How many there are to be; `models` has as many once all are trained, oldest test span first.
    """

    name: str
    pipeline: str
    run_id: str
    folds: int
    models: tuple[FoldModel, ...]

    @property
    def finished(self) -> bool:
        """Whether every fold has its model."""
        return len(self.models) == self.folds

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "pipeline": self.pipeline,
            "run_id": self.run_id,
            "folds": self.folds,
            "models": [vars(model) for model in self.models],
        }

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> WalkForward:
        """The inverse of `to_dict`."""
        return cls(
            name=str(table["name"]),
            pipeline=str(table["pipeline"]),
            run_id=str(table["run_id"]),
            folds=int(table["folds"]),
            models=tuple(FoldModel(**model) for model in table["models"]),
        )


def record_path(space: Workspace, name: str) -> Path:
    """Where the record of the walk-forward `name` lies, beside the models."""
    return space.trained / f"{name}{ENDING}"


def save_record(space: Workspace, record: WalkForward) -> Path:
    """Write a record, whole or not at all."""
    table = {"klinepred_walk_forward": FORMAT, **record.to_dict()}
    path = record_path(space, record.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(table, ensure_ascii=False, indent=1))
    return path


def read_record(path: Path) -> WalkForward:
    """Read a record.

    Raises
    ------
    ModelError
        It is none, or of a newer format.
    """
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        record = WalkForward.from_dict(table)
        number = table["klinepred_walk_forward"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _foreign(path, f"one that cannot be read: {error}") from error
    if number != FORMAT:
        raise _foreign(path, f"format {number!r}")
    return record


def _foreign(path: Path, got: str) -> ModelError:
    return ModelError(
        f"walk-forward {path}",
        expected=f"a file as `klinepred train` writes it for dataset.split.folds above 1, format {FORMAT}",
        got=got,
        do="train the walk-forward again",
    )


def list_records(space: Workspace) -> list[WalkForward]:
    """All readable records of the workspace, by name."""
    found = []
    for path in sorted(space.trained.glob(f"*{ENDING}")):
        try:
            found.append(read_record(path))
        except ModelError as error:
            log.warning("%s", error)
    return found


def out_of_sample(record: WalkForward, space: Workspace) -> pl.DataFrame:
    """Each labelled bar of the test spans, predicted by the one model of the walk-forward that had not seen it.

    Returns
    -------
    polars.DataFrame
        symbol, ts, fold, model, kind (0 = within, 1 = across a break), prediction and target (what was learned, in
        units of volatility), raw and vol (the raw target and its unit), sorted by symbol and ts.

    Raises
    ------
    ModelError, StoreError, DatasetError
        A model is gone, or its bars are not stored.
    """
    import polars as pl

    from klinepred.model.bundle import load_bundle
    from klinepred.model.forward import forward_rows

    parts = []
    for one in record.models:
        bundle = load_bundle(space.trained / one.model)
        data = dataset_of(bundle, space)
        mask_N = data.mask("test")
        pred_N = forward_rows(bundle.network, data.x_NF, data.part("test"))
        parts.append(
            data.rows.filter(pl.Series(mask_N, dtype=pl.Boolean)).select(
                "symbol",
                "ts",
                fold=pl.lit(one.fold, dtype=pl.Int64),
                model=pl.lit(one.model),
                kind=pl.Series(data.kind_N[mask_N]),
                prediction=pl.Series(pred_N[mask_N]),
                target=pl.Series(data.y_N[mask_N]),
                raw=pl.Series(data.raw_N[mask_N]),
                vol=pl.Series(data.vol_N[mask_N]),
            )
        )
    return pl.concat(parts).sort("symbol", "ts")
