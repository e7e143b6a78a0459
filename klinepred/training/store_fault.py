"""In: an error of MLflow's store. Out: the `TrainingError` that names the store and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import Timeout

from klinepred.errors import TrainingError
from klinepred.training.patience import stoppable
from klinepred.training.quiet import first_line


@contextmanager
def store_errors(uri: str, *, then: str, checkpoint: Path | None = None) -> Iterator[None]:
    """Faults of the run store `uri` in the block become a TrainingError that names it.

    Parameters
    ----------
    then
        What to do once it is mended.
    checkpoint
        What continues the run whose store it is.

    Raises
    ------
    TrainingError, TrainingStopped
        The store failed; or a stop signal came while it did not answer.
    """
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with stoppable(uri, checkpoint=checkpoint):
            yield
    except (MlflowException, SQLAlchemyError, OSError, Timeout) as error:
        raise store_fault(error, what="run", uri=uri, then=then) from error


def store_fault(error: BaseException, *, what: str, uri: str, then: str) -> TrainingError:
    """The error to raise; a store of another version of MLflow needs another remedy than a full disk.

    Parameters
    ----------
    what
        What lies in the store: "run".
    then
        What to do once it is mended.
    """
    mend = "free space, mend permissions or the server"
    if "database schema" in str(error):
        mend = f"keep a copy of it and run mlflow db upgrade '{uri}', or name another store"
    return TrainingError(
        f"MLflow {what} in {uri}",
        expected="a run store that can be read and written",
        got=first_line(error),
        do=f"{mend}, then {then}",
    )
