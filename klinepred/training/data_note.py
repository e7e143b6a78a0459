"""In: a dataset. Out: what a run says of it in MLflow: digest, spans, symbols, rows of each part."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from klinepred.dataset.make import Dataset
from klinepred.training.checkpoint import data_fingerprint

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

    from klinepred.training.tracker import Tracker

SHOWN: Final = 40
"""Symbols named in MLflow; all of them stand in `dataset.json`."""


@dataclass(frozen=True)
class DataNote:
    """The data of one run.

    Attributes
    ----------
    digest
        Of all features, labels, parts and sequences; equal digests, equal data.
    spans
        By symbol: its clock, its first and last session.
    rows
        Labelled rows by part.
    """

    digest: str
    features: tuple[str, ...]
    target: str
    horizon: int
    first_session: str
    last_session: str
    split: dict[str, Any]
    spans: dict[str, tuple[str, str, str]]
    rows: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "digest": self.digest,
            "target": self.target,
            "horizon": self.horizon,
            "first_session": self.first_session,
            "last_session": self.last_session,
            "split": self.split,
            "rows": self.rows,
            "features": list(self.features),
            "symbols": {
                symbol: {"calendar": clock, "first_session": first, "last_session": last}
                for symbol, (clock, first, last) in self.spans.items()
            },
        }


def record_data(data: Dataset, tracker: Tracker) -> str:
    """Let the tracker record the dataset; its fingerprint, over which every number of it goes."""
    fingerprint = data_fingerprint(data)
    tracker.log_data(note_of(data, fingerprint=fingerprint))
    return fingerprint


def note_of(data: Dataset, *, fingerprint: str) -> DataNote:
    """What there is to say of a dataset; `fingerprint` is that of `klinepred.training.checkpoint`."""
    spans = data.spans()
    session = data.rows.get_column("session")
    return DataNote(
        digest=hashlib.blake2b(fingerprint.encode(), digest_size=8).hexdigest(),
        features=tuple(data.features.names),
        target=data.settings.target,
        horizon=data.settings.horizon,
        first_session=str(session.min()),
        last_session=str(session.max()),
        split=data.split.to_dict(),
        spans={symbol: (clock, str(first), str(last)) for symbol, first, last, clock in spans.iter_rows()},
        rows=data.counts(),
    )


def dataset_input(note: DataNote, *, name: str, place: str, version: int | None) -> DatasetInput:
    """The note as an input of a run; MLflow shows its name and digest in the run list, the rest beside it.

    Parameters
    ----------
    place, version
        URI of the bar store, and the version of its table that was read.
    """
    from mlflow.entities import Dataset as Entry
    from mlflow.entities import DatasetInput, InputTag

    symbols = list(note.spans)
    profile = {
        "store_version": version,
        "first_session": note.first_session,
        "last_session": note.last_session,
        "symbols": len(symbols),
        "names": ", ".join(symbols[:SHOWN]) + (" …" if len(symbols) > SHOWN else ""),
        **{f"rows_{part}": count for part, count in note.rows.items()},
        **note.split,
    }
    columns = [{"type": "float", "name": feature, "required": True} for feature in note.features]
    entry = Entry(
        name=name,
        digest=note.digest,
        source_type="delta_table",
        source=json.dumps({"path": place, "delta_table_version": version, "is_databricks_uc_table": False}),
        schema=json.dumps({"mlflow_colspec": columns}),
        profile=json.dumps(profile, ensure_ascii=False),
    )
    return DatasetInput(entry, [InputTag("mlflow.data.context", "training")])
