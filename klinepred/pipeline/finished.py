"""In: a checkpoint. Out: the model that its run has put on the shelf, where nothing of it is left to train."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from klinepred.model.shelf import list_models
from klinepred.paths import Workspace
from klinepred.settings import Pipeline

FINISHED: Final = "FINISHED"


def finished_model(space: Workspace, checkpoint: Path, run: Pipeline) -> Path | None:
    """Folder of the model of a run that has ended well under these very settings; None where there is something to do.

    A run that failed after its last step, because its model found no room on the shelf say, is gone on with.

    Raises
    ------
    TrainingError
        The checkpoint cannot be read.
    """
    from klinepred.training.checkpoint import load_checkpoint
    from klinepred.training.review import status_of

    table = load_checkpoint(checkpoint)
    run_id = str(table["run_id"])
    if not run_id or table["pipeline"] != run.model_dump(mode="json"):
        return None
    own = [entry for entry in list_models(space) if entry.table.get("provenance", {}).get("run_id") == run_id]
    return own[-1].folder if own and status_of(space, run_id) == FINISHED else None
