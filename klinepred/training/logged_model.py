"""In: a bundle's folder, a run. Out: the run's model in MLflow: a pyfunc from code, its only artifact the bundle."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from klinepred import __version__
from klinepred.errors import KlinepredError
from klinepred.model.bundle import ModelBundle
from klinepred.training.example import example_bars
from klinepred.training.registry import VERSIONS

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Run
    from mlflow.models import Model, ModelSignature

log = logging.getLogger("klinepred.training")

CODE: Final = Path(__file__).parents[1] / "serving" / "next_bar.py"
"""What MLflow runs when it loads the model; it is copied into each."""
MODEL: Final = "model"
"""Name of the model within its run: `runs:/RUN_ID/model`."""


def log_model(client: MlflowClient, run_id: str, bundle: ModelBundle, folder: Path) -> str:
    """Write `bundle`, which lies in `folder`, as the model of a run; its id in MLflow.

    The weights lie in MLflow once, inside the model. Nothing is pickled, no environment is inferred. A run has one
    model: what a kill has left of another is deleted, and this bundle is not written twice.

    Raises
    ------
    mlflow.exceptions.MlflowException, OSError
        The store cannot be written.
    """
    from mlflow.models import Model

    experiment = client.get_run(run_id).info.experiment_id
    if (kept := _kept(client, experiment, run_id, bundle.name)) is not None:
        return kept
    with tempfile.TemporaryDirectory(prefix="klinepred-") as place:
        path = Path(place) / MODEL
        entry = client.create_logged_model(
            experiment, name=MODEL, source_run_id=run_id, tags=model_tags(bundle), params={}, model_type="klinepred"
        )
        try:
            own = Model(MODEL, run_id, model_uuid=entry.model_id, model_id=entry.model_id)
            write_pyfunc(bundle, folder, path, table=own)
            client.log_model_artifacts(entry.model_id, str(path))
        except BaseException:
            client.finalize_logged_model(entry.model_id, "FAILED")
            raise
    client.finalize_logged_model(entry.model_id, "READY")
    return str(entry.model_id)


def link_model(client: MlflowClient, run_id: str, model_id: str) -> None:
    """Name the model as the output of its run, once it is sure to stay."""
    from mlflow.entities import LoggedModelOutput

    outputs = client.get_run(run_id).outputs
    if model_id not in {output.model_id for output in (outputs.model_outputs if outputs else ())}:
        client.log_outputs(run_id, [LoggedModelOutput(model_id, step=0)])


def is_registered(client: MlflowClient, run: Run) -> bool:
    """Whether the run's model has its version in the registry, with all that belongs to it."""
    return any(VERSIONS in model.tags for model in _models_of(client, run.info.experiment_id, run.info.run_id))


def _models_of(client: MlflowClient, experiment: str, run_id: str) -> list[LoggedModel]:
    return list(client.search_logged_models([experiment], f"source_run_id = '{run_id}'"))


def _kept(client: MlflowClient, experiment: str, run_id: str, name: str) -> str | None:
    """The run's model of the bundle `name`, if it is whole; others that nothing points at are deleted."""
    kept = None
    for model in _models_of(client, experiment, run_id):
        if kept is None and str(model.status) == "READY" and model.tags.get("bundle") == name:
            kept = str(model.model_id)
        elif VERSIONS not in model.tags:
            client.delete_logged_model(model.model_id)
    return kept


def write_pyfunc(bundle: ModelBundle, folder: Path, path: Path, *, table: Model | None = None) -> None:
    """The bundle in `folder` as an MLflow model in the new folder `path`; `mlflow.pyfunc.load_model(path)` opens it.

    Parameters
    ----------
    table
        What the file MLmodel begins with: the run and the model it belongs to.
    """
    from mlflow.pyfunc import save_model

    save_model(
        str(path),
        mlflow_model=table,
        python_model=str(CODE),
        artifacts={"bundle": str(folder)},
        signature=signature(),
        input_example=_example(bundle),
        pip_requirements=requirements(),
        metadata={"klinepred": __version__, "bundle": bundle.name, "pipeline": bundle.pipeline.get("name", "")},
    )


def signature() -> ModelSignature:
    """Raw bars in, the columns of `klinepred predict` out; stamps are text, since MLflow has none with a zone.

    `volume` is of any type: MLflow would refuse whole numbers for a double, and volumes are whole numbers.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema
    from mlflow.types.schema import AnyType

    prices = [ColSpec("double", name) for name in ("open", "high", "low", "close")]
    bars = [ColSpec("string", "symbol"), ColSpec("string", "ts"), *prices, ColSpec(AnyType(), "volume")]  # type: ignore[no-untyped-call]
    kinds = {
        **dict.fromkeys(("symbol", "bar_ts", "asof", "target_ts", "target"), "string"),
        **dict.fromkeys(("expected_return_bps", "p_up", "lo80_bps", "hi80_bps"), "double"),
        **dict.fromkeys(("stale", "in_training"), "boolean"),
        **dict.fromkeys(("note", "model", "run_id"), "string"),
    }
    return ModelSignature(
        inputs=Schema([*bars, ColSpec("string", "calendar", required=False)]),
        outputs=Schema([ColSpec(kind, name) for name, kind in kinds.items()]),
        params=ParamSchema([ParamSpec(name, "string", "") for name in ("now", "start", "end")]),
    )


def requirements() -> list[str]:
    """What an environment that serves the model needs: klinepred of this version, which brings the rest."""
    return [f"klinepred=={__version__}", f"torch=={str(torch.__version__).partition('+')[0]}"]


def model_tags(bundle: ModelBundle) -> dict[str, str]:
    """What MLflow's page of the model shows beside it."""
    facts: Mapping[str, Any] = bundle.provenance
    named = {"bundle": bundle.name, "leak_certificate": facts.get("leak_certificate"), "target": bundle.dataset.target}
    return {name: str(value) for name, value in named.items() if value}


def _example(bundle: ModelBundle) -> pd.DataFrame | None:
    """None, with a word, where the bars cannot be made: a finished training is not lost for want of an example."""
    try:
        return example_bars(bundle).to_pandas()
    except KlinepredError as error:
        log.warning("the model has no input example in MLflow: %s", error.summary)
        return None
