"""In: an error of MLflow's store. Out: the `TrainingError` that names the store and what to do about it."""

from __future__ import annotations

from klinepred.errors import TrainingError
from klinepred.training.quiet import first_line


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
