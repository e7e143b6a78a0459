"""In: a checkpoint. Out: the model that its run has put on the shelf, where nothing of it is left to train."""

from __future__ import annotations

from pathlib import Path

from klinepred.model.shelf import list_models
from klinepred.paths import Workspace
from klinepred.settings import Pipeline


def finished_model(space: Workspace, checkpoint: Path, run: Pipeline) -> Path | None:
    """Folder of the model of a run that was trained to its end under these very settings; None where there is none.

    A kill may have come after the model was on the shelf and before its run was closed: that is done now. A run that
    failed after its last step, because its model found no room on the shelf say, is gone on with.

    Raises
    ------
    TrainingError
        The checkpoint cannot be read, the run's store cannot be written, or another process is still at the run.
    """
    from klinepred.training.checkpoint import load_checkpoint

    table = load_checkpoint(checkpoint)
    run_id, settings = str(table["run_id"]), run.model_dump(mode="json")
    if not run_id or table["pipeline"] != settings:
        return None
    for entry in reversed(list_models(space)):
        own = entry.table.get("provenance", {}).get("run_id") == run_id and entry.table.get("pipeline") == settings
        if own and conclude_run(space, entry.folder):
            return entry.folder
    return None


def conclude_run(space: Workspace, folder: Path) -> bool:
    """Close the run of a model on the shelf, if a kill came before that; False where the store has no such run.

    Raises
    ------
    ModelError, TrainingError
        The model cannot be read; or as `klinepred.training.closing.conclude`.
    """
    from klinepred.model.bundle import load_bundle
    from klinepred.training.closing import conclude
    from klinepred.training.review import status_of

    bundle = load_bundle(folder)
    if not bundle.run_id or not status_of(space, bundle.run_id):
        return False
    conclude(space, bundle, folder, pipeline=str(bundle.pipeline.get("name", "")))
    return True
