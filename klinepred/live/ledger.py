"""In: predictions as they are made. Out: the ledger: those for bars still to come, each once, never changed."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import polars as pl

from klinepred.bars.lock import WAIT_S, writer
from klinepred.live.table import LEDGER, Table, append, reading, scan
from klinepred.paths import Workspace, write_atomic
from klinepred.schema import BAR, PREDICTION_SCHEMA, TS

log = logging.getLogger("klinepred.live")

KEY: Final = ("model", "run_id", "symbol", "bar_ts")
"""What a prediction is known by: the first one of a key stands."""
PREDICTIONS: Final = Table(
    "predictions", {**PREDICTION_SCHEMA, "store_version": pl.Int64(), "made_at": TS, "written_at": TS}
)
"""`made_at` is the clock the prediction was made by (`--now`, else the machine's), `written_at` the machine's."""


@dataclass(frozen=True)
class Recorded:
    """What became of predictions that were to be recorded.

    Attributes
    ----------
    new
        Rows that went into the ledger.
    again
        Rows whose key was there already: the earlier prediction stands, these are not kept.
    past
        Rows whose target bar had finished by the clock: no prediction of something still to come, so not kept.
    """

    new: int
    again: int
    past: int

    def sentence(self) -> str:
        """One plain line; empty where all went in and nothing needs a word."""
        parts = []
        if self.again:
            parts.append(f"{self.again:,} of this model were in it already, and the first stand")
        if self.past:
            parts.append(f"{self.past:,} are for bars that have finished already, so they are not live")
        return f"ledger: {self.new:,} new; " + "; ".join(parts) if parts else ""


def ledger_folder(space: Workspace) -> Path:
    """Where the ledger of a workspace lies."""
    return space.data / LEDGER


def record(
    space: Workspace,
    rows: pl.DataFrame,
    *,
    store_version: int,
    now: datetime | None = None,
    universe: Sequence[str] | None = None,
) -> Recorded:
    """Keep predictions in the ledger of the workspace, in one commit.

    A row counts as live if the bar it predicts (`target_ts`) had not finished by the clock; others are left out. A
    model's prediction from one bar of one symbol is kept once: the first stands, whatever a later one says.

    Parameters
    ----------
    rows
        Columns of `klinepred.schema.PREDICTION_SCHEMA`.
    store_version
        Version of the bar store they were made from.
    now
        The clock they were made by (aware); default: the machine's.
    universe
        Symbols of the model's universe, which grades of relative forecasts need; default: looked up in the model of
        that name in `models/trained`.

    Raises
    ------
    StoreError
        The ledger cannot be written, or another process holds it; it is as it was.
    """
    clock = datetime.now(UTC) if now is None else now.astimezone(UTC)
    live = rows.select(PREDICTION_SCHEMA.keys()).filter(pl.col("target_ts") + BAR > pl.lit(clock, TS))
    past = rows.height - live.height
    single = live.unique(KEY, keep="first", maintain_order=True)
    if single.is_empty():
        return Recorded(0, 0, past)
    folder = ledger_folder(space)
    for model, run_id in single.select("model", "run_id").unique(maintain_order=True).iter_rows():
        _keep_universe(space, str(model), str(run_id), universe)
    with writer(folder, wait_s=WAIT_S), reading(folder):
        oldest: Any = single.get_column("bar_ts").min()
        known = scan(folder, PREDICTIONS, since=oldest).select(KEY).collect()
        fresh = (
            single.join(known, on=KEY, how="anti", nulls_equal=True, maintain_order="left") if known.height else single
        )
        if fresh.height:
            stamped = fresh.with_columns(
                store_version=pl.lit(store_version, pl.Int64),
                made_at=pl.lit(clock, TS),
                written_at=pl.lit(datetime.now(UTC), TS),
            )
            append(folder, PREDICTIONS, stamped)
    return Recorded(fresh.height, live.height - fresh.height, past)


def universe_of(space: Workspace, model: str, run_id: str) -> tuple[str, ...] | None:
    """The universe of a model with predictions in the ledger; None where nobody said."""
    try:
        table = json.loads(_universe_path(space, model, run_id).read_text(encoding="utf-8"))
        return tuple(str(symbol) for symbol in table["universe"])
    except (OSError, ValueError, KeyError, TypeError):
        return _shelved(space, model, run_id)


def _keep_universe(space: Workspace, model: str, run_id: str, universe: Sequence[str] | None) -> None:
    """The models of a shelf come and go; what grades need of them stays with the ledger."""
    path = _universe_path(space, model, run_id)
    if path.is_file():
        return
    found = _shelved(space, model, run_id) if universe is None else tuple(universe)
    if found is None:
        return
    with writer(ledger_folder(space), wait_s=WAIT_S):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps({"model": model, "run_id": run_id, "universe": found}, ensure_ascii=False))


def _universe_path(space: Workspace, model: str, run_id: str) -> Path:
    digest = hashlib.sha256(f"{model}\n{run_id}".encode(errors="surrogatepass")).hexdigest()
    return ledger_folder(space) / "universes" / f"{digest[:32]}.json"


def _shelved(space: Workspace, model: str, run_id: str) -> tuple[str, ...] | None:
    """From the JSON of the bundle, read as it is: loading a model would load torch."""
    if Path(model).name != model:
        return None
    try:
        table = json.loads((space.trained / model / "bundle.json").read_text(encoding="utf-8"))
        same = str(table["provenance"].get("run_id", "")) == run_id
        return tuple(str(symbol) for symbol in table["universe"]) if same else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
