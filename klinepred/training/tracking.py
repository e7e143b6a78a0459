"""In: a workspace, a pipeline, what happens in training. Out: an MLflow run that tells all of it."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klinepred import __version__
from klinepred.bars.store import store_version
from klinepred.bars.tables import BARS
from klinepred.errors import TrainingError
from klinepred.model.bundle import ModelBundle
from klinepred.paths import Workspace
from klinepred.settings import Pipeline
from klinepred.training.checkpoint import checkpoint_folder
from klinepred.training.closing import FINISHED, close_run, refuse_busy
from klinepred.training.data_note import DataNote, dataset_input
from klinepred.training.experiment import close_gone, open_experiment
from klinepred.training.logged_model import log_model
from klinepred.training.metric_names import clean_name
from klinepred.training.moved import FAMILY
from klinepred.training.origin import git_commit, process_tags, user_name
from klinepred.training.outbox import Outbox
from klinepred.training.patience import hope_again
from klinepred.training.quiet import quiet
from klinepred.training.registry import register
from klinepred.training.resolved import flat_settings, pipeline_toml
from klinepred.training.runs import reach_server, run_store
from klinepred.training.signals import TrainingStopped
from klinepred.training.store_fault import store_errors
from klinepred.training.system import SystemWatch
from klinepred.training.tracker import Metric, RunStatus

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

log = logging.getLogger("klinepred.training")

CHUNK: Final = 1000  # metrics that MLflow takes at once


class MlflowTracker:
    """Implements `klinepred.training.tracker.Tracker` with one MLflow run in the experiment `klinepred/<pipeline>`.

    It talks to its own store through MlflowClient alone: MLflow's global state is neither read nor set. Metrics,
    tags and artifacts may be added after the end.

    Parameters
    ----------
    version
        Version of the bar store that the run's bars come from; default: the newest at the start.

    Raises
    ------
    UsageError, TrainingError
        The store is of a kind that MLflow no longer supports, or its server is gone; nothing was started yet.
    """

    def __init__(self, space: Workspace, run: Pipeline, *, version: int | None = None) -> None:
        self.space = space
        self._version = version
        self.pipeline: Pipeline | None = run
        self.uri = run_store(space)
        reach_server(self.uri)
        hope_again(self.uri)
        self.run_id = self.run_name = ""
        self.checkpoint: Path | None = None
        self._client: MlflowClient | None = None
        self._above: tuple[MlflowTracker, str] | None = None
        self._model_id = self._name = ""
        self._read: int | None = None
        self._part = False
        self._marks: dict[str, str] = {}
        self._watch: SystemWatch | None = None
        self._outbox = Outbox(self.write)
        self._open_run = False
        self._had: dict[str, int] = {}

    def member(self, number: int) -> MlflowTracker:
        """The tracker of a run below this one (MLflow's UI shows it nested); this run must be open."""
        return self.below(f"member-{number}", part=True)

    def below(self, label: str, *, part: bool = False, marks: Mapping[str, str] | None = None) -> MlflowTracker:
        """As `member`, for a fold or a trial of settings, with tags `marks`; a `part` keeps no model of its own."""
        child = MlflowTracker(self.space, self.pipeline or Pipeline(name="unnamed"), version=self._version)
        child._above, child._part, child._marks = (self, label), part, dict(marks or {})
        return child

    def start(
        self,
        pipeline: Pipeline | None,
        *,
        params: Mapping[str, str | float],
        tags: Mapping[str, str],
        resume: str | None,
    ) -> dict[str, Any]:
        """Open the run, or take up run `resume` if its settings are these; else a new one that names it.

        Runs of this machine whose process is gone are marked KILLED first.

        Returns
        -------
        dict
            run_id, run_name, commit, store_version: provenance for the bundle.

        Raises
        ------
        TrainingError
            The store cannot be opened or written, or run `resume` is still being trained by another process.
        """
        run = pipeline or self.pipeline or Pipeline(name="unnamed")
        commit = git_commit(self.space.root)
        version = store_version(self.space) if self._version is None else self._version
        settings = {**flat_settings(run), **{key: str(value) for key, value in params.items()}}
        self._read, self._name = version, run.name
        about = {
            **process_tags(self.space.root),
            **tags,
            **({} if version is None else {"store_version": str(version)}),
            **({"mlflow.parentRunId": self._above[0].run_id} if self._above else {}),
            "mlflow.user": user_name(),
            "mlflow.source.name": "klinepred train",
            "mlflow.source.type": "LOCAL",
            "mlflow.source.git.commit": commit or f"klinepred {__version__}",
            **self._marks,
        }
        with quiet():
            import mlflow  # noqa: F401  # seconds, and messages of its own
        with self._errors():
            self._client, experiment = open_experiment(self.space, self.uri, FAMILY + run.name)
            close_gone(self._client)
            if not (resume and self._take_up(resume, settings)):
                self._create(experiment, self._new_name(run), resume)
            try:
                self._log(params=settings, tags=about)
                config = run.model_dump(mode="json")
                self.client.log_text(self.run_id, json.dumps(config, ensure_ascii=False, indent=1), "config.json")
                self.client.log_text(self.run_id, pipeline_toml(run), "config.toml")
            except BaseException:
                self.client.set_terminated(self.run_id, "FAILED")
                raise
        self._open_run = True
        if self._above is None:
            self._watch = SystemWatch(self.run_id, uri=self.uri)
        self.checkpoint = checkpoint_folder(self.space) / f"{self.run_name}-{self.run_id[:8]}.pt"
        return {"run_id": self.run_id, "run_name": self.run_name, "commit": commit, "store_version": version}

    @property
    def client(self) -> MlflowClient:
        """The client of the run's store, from `start` on."""
        if self._client is None:
            raise TrainingError("MLflow run", expected="a started run", got="none", do="call start first")
        return self._client

    def log_metrics(self, metrics: Sequence[Metric]) -> None:
        """Let finite numbers be recorded while training goes on; after the run's end they are when it returns.

        Of a run that was taken up, steps that it has already are left out: it was killed between record and checkpoint.

        Raises
        ------
        TrainingError
            Earlier ones could not be written.
        """
        if not self._open_run:
            self.write(metrics)
        elif fresh := [metric for metric in metrics if metric.step > self._had.get(clean_name(metric.name), -1)]:
            with self._errors():
                self._outbox.put(fresh)

    def settle(self) -> None:
        """Return when all numbers so far are in the store. Raises as `log_metrics`."""
        with self._errors():
            self._outbox.flush()

    def write(self, metrics: Sequence[Metric]) -> None:
        """Record finite numbers now; names are cleaned for MLflow (`klinepred.training.metric_names`)."""
        from mlflow import entities

        rows = [
            entities.Metric(clean_name(metric.name), float(metric.value), metric.time_ms, metric.step)
            for metric in metrics
            if math.isfinite(metric.value)
        ]
        for at in range(0, len(rows), CHUNK):
            with self._errors():
                self.client.log_batch(self.run_id, metrics=rows[at : at + CHUNK])

    def log_folder(self, folder: Path, *, under: str) -> None:
        """Copy all files of `folder` to the run's artifacts."""
        with self._errors():
            self.client.log_artifacts(self.run_id, str(folder), under)

    def log_data(self, note: DataNote) -> None:
        """Record the dataset as an input of the run, all of it as `dataset.json`."""
        place = (self.space.store / BARS).as_uri()
        with self._errors():
            entry = dataset_input(note, name=f"bars of {self._name}", place=place, version=self._read)
            self.client.log_inputs(self.run_id, [entry])
            table = {"store_version": self._read, **note.to_dict()}
            self.client.log_text(self.run_id, json.dumps(table, ensure_ascii=False, indent=1), "dataset.json")

    def log_model(self, bundle: ModelBundle, folder: Path) -> None:
        """Keep the bundle as the run's model; a member's weights lie in the ensemble's, so it has none of its own."""
        if not self._part:
            with self._errors(), quiet():
                self._model_id = log_model(self.client, self.run_id, bundle, folder)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set or replace tags of the run."""
        with self._errors():
            self._log(params={}, tags=tags)

    def end(self, status: RunStatus) -> None:
        """Draw the pictures and close the run; a fault while closing a run that failed is only reported.

        A run whose store does not answer after a stop signal stays open there: the next one marks it KILLED.
        """
        try:
            with self._errors():
                if self._watch is not None:
                    self._watch.stop()
                self._open_run = False
                self._close_outbox(status)
                close_run(self.client, self.run_id, status=status, model_id=self._model_id)
                if status == FINISHED and self._model_id:
                    register(self.client, self._name, uri=self.uri, run_id=self.run_id, model_id=self._model_id)
        except TrainingStopped:
            if status != "KILLED":
                raise
            log.warning("run %s stays RUNNING in %s, which does not answer", self.run_name, self.uri)
        except TrainingError as error:
            if status == FINISHED:
                raise
            log.error("%s", error)  # noqa: TRY400  # the error that ended the run is the one to show

    def _close_outbox(self, status: RunStatus) -> None:
        """Write what waits; numbers that cannot be written fail a run that has not failed for another reason."""
        try:
            self._outbox.close()
        except TrainingError as error:
            if status == FINISHED:
                self.client.set_terminated(self.run_id, "FAILED")
                raise
            log.error("%s", error)  # noqa: TRY400  # the error that ended the run is the one to show

    def _new_name(self, run: Pipeline) -> str:
        if self._above is not None:
            return f"{self._above[0].run_name}-{self._above[1]}"
        return f"{run.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"

    def _create(self, experiment: str, name: str, resumed: str | None) -> None:
        run = self.client.create_run(experiment, run_name=name)
        self.run_id, self.run_name = str(run.info.run_id), name
        if resumed:
            self.client.set_tag(self.run_id, "klinepred.resumed_from", resumed)

    def _take_up(self, run_id: str, settings: Mapping[str, str]) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            run: Run = self.client.get_run(run_id)
        except MlflowException:  # another store, or deleted for good
            return False
        if run.info.lifecycle_stage != "active" or any(settings.get(k) != v for k, v in run.data.params.items()):
            return False
        refuse_busy(run)
        self.client.update_run(run_id, status="RUNNING")
        self._had = {str(newest.key): int(newest.step) for newest in run.data.to_proto().metrics}
        self.run_id, self.run_name = run_id, str(run.info.run_name)
        return True

    def _log(self, *, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        from mlflow.entities import Param, RunTag

        items = list(params.items())
        for at in range(0, len(items), 100):
            self.client.log_batch(self.run_id, params=[Param(key, value) for key, value in items[at : at + 100]])
        self.client.log_batch(self.run_id, tags=[RunTag(key, value) for key, value in tags.items()])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Faults of the store become a TrainingError that names it; see `store_errors`."""
        on = "continue with klinepred train --resume last" if self.checkpoint else "train again"
        with store_errors(self.uri, then=on, checkpoint=self.checkpoint):
            yield
