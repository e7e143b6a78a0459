"""In: a run and its model. Out: a version in MLflow's registry, with the aliases `candidate` and `champion`."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from klinepred.errors import KlinepredError
from klinepred.paths import Workspace
from klinepred.training.moved import adopt_moved
from klinepred.training.quiet import first_line, quiet
from klinepred.training.runs import check_store, run_store

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

log = logging.getLogger("klinepred.training")

CANDIDATE: Final = "candidate"
"""Alias of the newest version."""
LINK: Final = "model_id"
"""Tag of a version: the logged model it is."""
VERSIONS: Final = "mlflow.modelVersions"
"""Tag of a logged model that has a version; MLflow's pages link by it."""
CHAMPION: Final = "champion"
"""Alias of the version that was promoted last; champion.json on the shelf decides what predicts."""


def registered_name(pipeline: str) -> str:
    """Name of a pipeline's models in the registry."""
    return f"klinepred-{pipeline}"


def register(client: MlflowClient, pipeline: str, *, uri: str, run_id: str, model_id: str) -> str | None:
    """Make the model the newest version of its pipeline, alias `candidate`; a registry that fails is warned of.

    A version that it has already, because a kill came after it, is taken up; the alias is its while it is the newest.

    Returns
    -------
    str or None
        The version; None where there is none.
    """
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    name = registered_name(pipeline)
    try:
        with quiet():
            _create(client, name)
            model = client.get_logged_model(model_id)
            tags = {key: text for key, text in model.tags.items() if not key.startswith("mlflow.")} | {LINK: model_id}
            # a database would resolve models:/… in MLflow's global store, which need not be this one
            source = f"models:/{model_id}" if uri.startswith("http") else model.artifact_location
            had = [one for one in versions_of(client, run_id) if (one.name, one.tags.get(LINK)) == (name, model_id)]
            made = had[0] if had else client.create_model_version(name, source, run_id, tags, model_id=model_id)
            if not had or int(made.version) == _newest(client, name):
                client.set_registered_model_alias(name, CANDIDATE, made.version)
            links = json.dumps([{"name": name, "version": made.version}])
            client.set_logged_model_tags(model_id, {VERSIONS: links})
    except (MlflowException, SQLAlchemyError, OSError) as error:
        log.warning("the model is not in MLflow's registry as %s: %s", name, first_line(error))
        return None
    return str(made.version)


def tag_versions(client: MlflowClient, run_id: str, tags: Mapping[str, str]) -> None:
    """Put tags on the model of a run and on its versions; a registry that fails is warned of."""
    from mlflow.exceptions import MlflowException

    try:
        for version in versions_of(client, run_id):
            if LINK in version.tags:
                client.set_logged_model_tags(version.tags[LINK], dict(tags))
            for key, text in tags.items():
                client.set_model_version_tag(version.name, version.version, key, text)
    except MlflowException as error:
        log.warning("MLflow's registry does not take the tags of run %s: %s", run_id, first_line(error))


def crown(space: Workspace, *, pipeline: str, run_id: str) -> bool:
    """Give the alias `champion` to the version of a run; whether it was done, which is warned of where not."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    name = registered_name(pipeline)
    try:
        uri = run_store(space)
        if uri == space.tracking_uri and not (space.mlruns / "mlflow.db").is_file():
            found = []
        else:
            check_store(uri)
            if uri == space.tracking_uri:
                adopt_moved(space)
            client = MlflowClient(tracking_uri=uri)
            found = [version for version in versions_of(client, run_id) if version.name == name]
        if found:
            client.set_registered_model_alias(name, CHAMPION, found[-1].version)
            return True
        reason = "it has no version there"
    except (MlflowException, KlinepredError, OSError) as error:
        reason = first_line(error)
    log.warning("MLflow's registry was not told of the champion of %s: %s", name, reason)
    return False


def versions_of(client: MlflowClient, run_id: str) -> list[ModelVersion]:
    """Versions made from a run, oldest first; none for an empty id."""
    found = client.search_model_versions(f"run_id = '{run_id}'") if run_id else []
    return sorted(found, key=lambda version: int(version.version))


def _newest(client: MlflowClient, name: str) -> int:
    return max((int(version.version) for version in client.search_model_versions(f"name = '{name}'")), default=0)


def _create(client: MlflowClient, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
