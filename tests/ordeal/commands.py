"""In: a workspace. Out: the commands that are tried in it, what each leaves behind, and whether all that is whole."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

import klinepred as kp
from klinepred.training.checkpoint import load_checkpoint
from tests.ordeal.children import Ended

NOW: Final = "2026-03-31T22:00:00Z"
TRAIN: Final = "epochs = 2\nsave_minutes = 0.001\n[evaluate]\nbootstrap = 50\n"
Outcome = Callable[[Path, Ended], Any]


def first_of(space: Path) -> str:
    """Name of the model that was there before anything was tried."""
    return (space / "first").read_text()


@dataclass(frozen=True)
class Command:
    """A command, how to go on after it was stopped, and what must be the same in the end however often it was."""

    words: tuple[str, ...]
    outcome: Outcome
    again: tuple[str, ...] | None = None
    before: Callable[[Path], None] = lambda _: None
    clock: bool = True
    """Whether it takes --now."""

    def line(self, space: Path, *, again: bool = False) -> list[str]:
        words = self.again if again and self.again is not None else self.words
        now = ["--now", NOW] if self.clock else []
        return [*(word.format(space=space, first=first_of(space)) for word in words), "-w", str(space), *now]


def _weights(space: Path, _: Ended) -> list[bytes]:
    """Of the models that were trained beside the first: all as one that nobody disturbed."""
    made = sorted(path for path in (space / "models" / "trained").glob("small-*") if path.name != first_of(space))
    return sorted({(path / "weights.safetensors").read_bytes() for path in made})


def _verdict(space: Path, _: Ended) -> dict[str, Any]:
    table = json.loads((space / "models" / "trained" / first_of(space) / "verdict.json").read_text())
    return {name: value for name, value in table.items() if name != "evaluated"}


def _said(_: Path, ended: Ended) -> str:
    return ended.out


def _kept(space: Path, _: Ended) -> dict[str, bytes]:
    folder = space / "data" / "features"
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.arrow")}


def bars_of(space: Path) -> bytes:
    """A digest of every stored bar."""
    bars = kp.scan_bars(kp.Workspace(space)).drop("calendar").collect()
    return bars.hash_rows(seed=1).to_numpy().tobytes()


def _bars(space: Path, _: Ended) -> bytes:
    return bars_of(space)


def _tuned(_: Path, ended: Ended) -> list[Any]:
    return sorted((row["trial"], row["outcome"], row["val_loss"], row["train.lr"]) for row in json.loads(ended.out))


def _no_features(space: Path) -> None:
    shutil.rmtree(space / "data" / "features")


PIPELINE: Final = ("-p", "{space}/small.toml")
COMMANDS: Final[dict[str, Command]] = {
    "train": Command(("train", *PIPELINE), _weights, ("train", "--resume", "last", *PIPELINE), clock=False),
    "evaluate": Command(("evaluate", *PIPELINE), _verdict),
    "predict": Command(("predict", *PIPELINE, "--format", "json"), _said),
    "features": Command(("features", "build", *PIPELINE), _kept, before=_no_features, clock=False),
    "ingest": Command(("ingest", "{space}/more.parquet", "--calendar", "XNYS"), _bars),
    "tune": Command(
        ("tune", *PIPELINE, "--trials", "2", "--space", "train.lr=1e-4,1e-3", "--format", "json", "--force"),
        _tuned,
        ("tune", "--resume", "--format", "json", "--force"),
        clock=False,
    ),
    "drift": Command(("drift", *PIPELINE, "--format", "json"), _said),
    "promote": Command(("models", "promote", "{first}", "--force"), _said, clock=False),
}


def more_bars(space: Path) -> None:
    """A file with the bars of three more days, for `ingest`."""
    bars = kp.scan_bars(kp.Workspace(space)).drop("calendar").collect()
    late = bars.filter(pl.col("ts") >= bars["ts"].max() - pl.duration(days=3))
    late.with_columns(pl.col("ts") + pl.duration(days=7)).write_parquet(space / "more.parquet")


def damage(space: Path, *, bars: bytes | None) -> list[str]:
    """What is not whole any more: models, checkpoints, the database of runs; bars, where they must be `bars`."""
    found: list[str] = []
    for folder in (space / "models" / "trained").iterdir():
        if folder.is_dir() and not folder.name.startswith("."):
            with _noted(found, folder):
                kp.load_bundle(folder)
    for path in (space / "mlruns" / "checkpoints").glob("*.pt"):
        with _noted(found, path):
            load_checkpoint(path)
    with contextlib.closing(sqlite3.connect(space / "mlruns" / "mlflow.db")) as store:
        found += [str(row) for row in store.execute("pragma integrity_check").fetchall() if row != ("ok",)]
    if bars is not None and bars_of(space) != bars:
        found.append("bars")
    return found


@contextlib.contextmanager
def _noted(found: list[str], path: Path) -> Iterator[None]:
    try:
        yield
    except kp.KlinepredError as error:
        found.append(f"{path.name}: {error}")
