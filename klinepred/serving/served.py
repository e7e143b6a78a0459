"""In: a workspace and a pipeline, or a model's folder. Out: the model as MLflow serves it, with a limit of rows."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from klinepred.errors import ModelError, TrainingError, UsageError
from klinepred.features.spec import FeatureSet
from klinepred.model.bundle import TABLE, features_of, load_bundle
from klinepred.model.shelf import champions
from klinepred.paths import Workspace
from klinepred.serving.answer import faults
from klinepred.serving.door import LEFT_OUT
from klinepred.training.moved import adopt_moved
from klinepred.training.quiet import first_line, quiet
from klinepred.training.registry import CHAMPION, registered_name
from klinepred.training.runs import check_store, run_store

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.models import Model
    from mlflow.pyfunc import PyFuncModel

log = logging.getLogger("klinepred.serving")

SYMBOLS: Final = 10_000
"""Symbols of which a request may hold all the bars that the features look back over, unless told otherwise."""
LONGEST_DAY: Final = 288
ROW_BYTES: Final = 1_000
"""Memory that one bar of a request takes while it is answered, at most."""


class Served:
    """What MLflow's scoring server asks: a pyfunc, with a limit on rows and on what memory there is.

    Parameters
    ----------
    most_rows
        Of a request.
    """

    def __init__(self, model: PyFuncModel, *, most_rows: int) -> None:
        self._model = model
        self._most_rows = most_rows
        self._lock = threading.Lock()
        self.metadata = _typed(model.metadata)

    def predict(self, data: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """As the model's own; one at a time.

        Raises
        ------
        mlflow.exceptions.MlflowException
            Also where the rows are too many, or a parameter has a name that the model does not know.
        """
        rows = len(data)
        with faults():
            schema = self.metadata.get_params_schema()  # type: ignore[no-untyped-call]
            known = [spec.name for spec in schema.params] if schema is not None else []
            odd = [name for name in params or {} if name not in known]
            if odd:  # MLflow would leave them out
                raise UsageError(
                    "params",
                    expected=f"none but {', '.join(known)}",
                    got=", ".join(str(name)[:40] for name in odd[:3]),
                    do="mend the name, or leave it out",
                )
            if rows > self._most_rows:
                raise UsageError(
                    "request",
                    expected=f"at most {self._most_rows:,} rows",
                    got=f"{rows:,}",
                    do="send only the bars that the features look back over, ask for fewer symbols, or serve with"
                    " --max-rows",
                )
            free = psutil.virtual_memory().available
            if rows * ROW_BYTES > free:
                raise UsageError(
                    "request",
                    expected=f"bars that fit into the {free / 2**30:.1f} GiB of free memory",
                    got=f"{rows:,} rows, which take up to {rows * ROW_BYTES / 2**30:.1f} GiB",
                    do="ask for fewer symbols at a time, or free memory",
                )
        with self._lock:
            answer: Any = self._model.predict(data, params=params)
        if (left_out := LEFT_OUT.get()) is not None:
            left_out.update(answer.attrs.get("left_out", {}))
        told: pd.DataFrame = answer
        return told


@contextmanager
def _asking(uri: str) -> Iterator[None]:
    """MLflow's global address is `uri` inside, and afterwards, with its environment variable, what it was."""
    import mlflow

    before = os.environ.get("MLFLOW_TRACKING_URI") or None
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)  # type: ignore[arg-type]  # None is the state before anybody has set one


def champion_of(space: Workspace, pipeline: str) -> PyFuncModel:
    """The version of a pipeline's model that has the alias `champion` in MLflow's registry.

    Of what lies there the bundle alone is taken: code that a model brings along is not run, since whoever may write to
    the registry would else be master of this machine.

    Raises
    ------
    ModelError, TrainingError
        There is none, or it cannot be loaded.
    """
    uri = run_store(space)
    name = registered_name(pipeline)
    if uri == space.tracking_uri and not (space.mlruns / "mlflow.db").is_file():
        raise _no_champion(name, pipeline, "no run store yet")
    check_store(uri)
    if uri == space.tracking_uri:
        adopt_moved(space)
    with quiet(), _asking(uri):
        import mlflow
        from mlflow.exceptions import MlflowException

        try:
            version = mlflow.MlflowClient(tracking_uri=uri).get_model_version_by_alias(name, CHAMPION)
        except MlflowException as error:
            raise _no_champion(name, pipeline, first_line(error)) from error
        with tempfile.TemporaryDirectory(prefix="klinepred-") as place:
            try:
                got = mlflow.artifacts.download_artifacts(f"models:/{name}@{CHAMPION}/artifacts", dst_path=place)
                found = [path.parent for path in Path(got).glob(f"*/{TABLE}")]
                fault = "" if len(found) == 1 else f"{len(found)} bundles in it"
            except (MlflowException, OSError) as error:
                found, fault = [], first_line(error)
            if fault:
                raise TrainingError(
                    f"version {version.version} of {name}",
                    expected="a model of klinepred that can be loaded",
                    got=fault,
                    do="promote another with klinepred models promote, or serve one of the shelf with --model",
                )
            model = model_in(found[0])
    own = str((model.metadata.metadata or {}).get("bundle", ""))
    best = champions(space)
    chosen = best.get(pipeline, best.get("", own))
    if chosen != own:
        log.warning(
            "MLflow's champion of %s is %s, that of klinepred predict is %s: promote it again", pipeline, own, chosen
        )
    return model


def model_in(folder: Path) -> PyFuncModel:
    """A bundle, of the shelf or exported, as MLflow would load it from its store.

    Raises
    ------
    ModelError
        It is damaged or foreign.
    """
    bundle = load_bundle(folder)
    with quiet(), tempfile.TemporaryDirectory(prefix="klinepred-") as place:
        import mlflow

        from klinepred.training.logged_model import write_pyfunc

        write_pyfunc(bundle, folder, Path(place) / "model")
        model: PyFuncModel = mlflow.pyfunc.load_model(str(Path(place) / "model"))
    return model


def usual_rows(model: PyFuncModel) -> int:
    """The limit on rows unless told otherwise: all the bars that ten thousand symbols need.

    Raises
    ------
    ModelError
        This version of klinepred does not compute the features of the model.
    """
    bundle = model.unwrap_python_model()._bundle  # type: ignore[no-untyped-call]
    return SYMBOLS * bars_needed(features_of(bundle), day=_day(set(bundle.calendars.values())))


def bars_needed(features: FeatureSet, *, day: int) -> int:
    """Bars of one symbol that its newest row looks back over, where a session has `day` of them."""
    return max(features.lookback_bars, (features.lookback_sessions + 1) * day)


def _typed(about: Model) -> Model:
    """What the server reads requests by: a number is a double, where the model itself takes whole ones as well."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema
    from mlflow.types.schema import AnyType

    own: ModelSignature = about.signature
    columns = [
        ColSpec("double", column.name, required=column.required) if isinstance(column.type, AnyType) else column
        for column in own.inputs.inputs
    ]
    other = copy(about)
    other.signature = ModelSignature(inputs=Schema(columns), outputs=own.outputs, params=own.params)
    return other


def _day(clocks: set[str]) -> int:
    from klinepred.prediction import longest_day

    return longest_day(clocks) or LONGEST_DAY


def _no_champion(name: str, pipeline: str, got: str) -> ModelError:
    return ModelError(
        f"champion of pipeline {pipeline!r}",
        expected=f"a version of {name} with the alias {CHAMPION} in MLflow's registry",
        got=got,
        do="promote one with klinepred models promote (klinepred models list shows them), or serve one with --model",
    )
