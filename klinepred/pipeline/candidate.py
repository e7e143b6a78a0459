"""In: a pipeline, its champion. Out: the model that may take its place, trained now or found where a kill left it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from klinepred.errors import KlinepredError, ModelError, TrainingError
from klinepred.model.shelf import list_models
from klinepred.paths import Workspace
from klinepred.pipeline.data import build_dataset
from klinepred.pipeline.finished import conclude_run
from klinepred.pipeline.learn import train_model, train_on
from klinepred.pipeline.rounds import Begun, begin
from klinepred.settings import Pipeline

if TYPE_CHECKING:
    from klinepred.model.bundle import ModelBundle
    from klinepred.training.progress import Progress

log = logging.getLogger("klinepred.pipeline")


def train_candidate(
    champion: ModelBundle | None,
    run: Pipeline,
    space: Workspace,
    *,
    version: int | None,
    bars: int,
    last_bar: str,
    progress: Progress | None = None,
) -> Path:
    """Train a model on what the store holds, from the champion's weights where they fit; its folder on the shelf.

    Parameters
    ----------
    champion
        None = training begins from random weights.
    version, bars, last_bar
        Of the store, as in `Round`.

    Raises
    ------
    StoreError, DatasetError, TrainingError
        As `klinepred.pipeline.train_model`.
    """
    from klinepred.training.checkpoint import checkpoint_folder
    from klinepred.training.tracking import MlflowTracker
    from klinepred.training.warm import check_seen

    first = _start_of(champion, run)
    tracker = MlflowTracker(space, run, version=version)
    data = build_dataset(run, space, version=version, scaler=first.scaler if first else None)
    if first is not None:
        try:
            check_seen(first, data.split)
        except TrainingError as error:
            _say_cold(error)
            first = None
            data = build_dataset(run, space, version=version)
    begun = Begun(
        settings=run.model_dump(mode="json"),
        bars=bars,
        last_bar=last_bar,
        store_version=version,
        champion=champion.name if champion else "",
        models=tuple(entry.name for entry in list_models(space)),
        checkpoints=tuple(path.name for path in checkpoint_folder(space).glob("*.pt")),
    )
    begin(space, run.name, begun)
    return train_on(
        data,
        run,
        space,
        version=version,
        tracker=tracker,
        progress=progress,
        checkpoint=None,
        first=first,
        allow_leaks=False,
    ).folder


def killed_candidate(
    before: Begun, run: Pipeline, space: Workspace, *, progress: Progress | None = None
) -> Path | None:
    """The model of a round that was killed: from the shelf, or trained to its end; None where nothing is left of it.

    Raises
    ------
    TrainingStopped, ModelError, TrainingError
        A stop signal came; or the run of the model on the shelf cannot be closed.
    """
    from klinepred.training.checkpoint import checkpoint_folder, load_checkpoint
    from klinepred.training.signals import TrainingStopped

    for entry in reversed(list_models(space)):
        if entry.name not in before.models and entry.table.get("pipeline") == before.settings:
            log.info("a round that was killed had trained %s: it goes on from there", entry.name)
            conclude_run(space, entry.folder)
            return entry.folder
    files = [path for path in checkpoint_folder(space).glob("*.pt") if path.name not in before.checkpoints]
    for path in sorted(files, key=lambda path: -path.stat().st_mtime):
        try:
            if "-member-" in path.stem or load_checkpoint(path)["pipeline"] != before.settings:
                continue
            log.info("a round was killed in training: it goes on from %s", path.stem)
            return train_model(run, space, progress=progress, resume=str(path)).folder
        except TrainingStopped:
            raise
        except KlinepredError as error:
            log.warning("a training that was killed cannot go on: %s: %s", error.summary, error.got)
    return None


def _start_of(champion: ModelBundle | None, run: Pipeline) -> ModelBundle | None:
    """The champion, if training can begin from its weights; else None, with the reason as a warning."""
    from klinepred.audit.mark import refuse_leaky_start
    from klinepred.features.custom import features_for
    from klinepred.training.warm import check_start

    if champion is None:
        return None
    try:
        check_start(champion, model=run.model, features=features_for(run.features), train=run.train)
        refuse_leaky_start(champion)
    except (ModelError, TrainingError) as error:
        _say_cold(error)
        return None
    return champion


def _say_cold(error: KlinepredError) -> None:
    log.warning(
        "training begins from random weights: %s: expected %s, got %s", error.summary, error.expected, error.got
    )
