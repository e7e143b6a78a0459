"""In: a study, one dataset, a Ray cluster. Out: its trials, side by side by Ray Tune, again where one was lost."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from klinepred.errors import TrainingError, UsageError
from klinepred.pipeline.referee import ASK_S, referee_beside, watched
from klinepred.pipeline.trials import Job, refuse_many_failures, stopped

if TYPE_CHECKING:
    from klinepred.dataset.make import Dataset
    from klinepred.tuning.study import Candidate
    from klinepred.tuning.trial import Setting

AGAIN: Final = 3
"""How often a trial is begun again whose worker was lost; it goes on from its checkpoint."""


def on_ray(job: Job, *, workers: int | None = None, gpus: float = 0.0) -> None:
    """Trials on the cluster of RAY_ADDRESS, or on one started here; a value for `klinepred.pipeline.tune.tune`.

    The data set lies once on each machine, in Ray's object store. The study belongs to one actor beside this process,
    which all trials ask.

    Parameters
    ----------
    workers
        Trials at once; default: one for each core. Each gets its share of the cores.
    gpus
        GPUs of each trial.

    Raises
    ------
    TrainingStopped
        A stop signal came to this process.
    KlinepredError
        Ray is not installed or has no room, or all trials fail.
    """
    from klinepred.engine.on_ray import ray_cluster
    from klinepred.training.nested import end_lost, runs_below
    from klinepred.training.signals import StopRequest
    from klinepred.tuning.study import Study, Tried

    os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")  # paths of this folder stay right in workers
    try:
        with ray_cluster(workers=None) as engine, StopRequest() as stop:  # in this order: Ray sets handlers of its own
            together, cores = _room(engine.ray.cluster_resources(), workers=workers, gpus=gpus)
            referee = referee_beside(engine.ray, job.path)
            try:
                with watched(engine.ray, referee, stop, job.told):
                    _search(engine.ray, referee, job, together=together, cores=cores, gpus=gpus)
            finally:
                engine.ray.kill(referee)
            if stop.signal is not None:
                raise stopped(stop.error(where="amid trials", checkpoint=None), job.path)
    finally:
        end_lost(job.setting.space, runs_below(job.setting.space, job.setting.parent[0]))
    study = Study(job.path)
    for row in study.rows():
        if row.outcome == "open":
            note = f"its worker was lost, at last when tried {AGAIN + 1} times"
            lost = Tried(row.number, row.values, "failed", row.loss, row.epochs, note=note)
            study.close(lost)
            job.told(lost)
    refuse_many_failures(study.rows())


def _room(have: Mapping[str, float], *, workers: int | None, gpus: float) -> tuple[int, int]:
    """Trials at once, and cores of each."""
    cores = max(1, int(have.get("CPU", 1)))
    together = workers or cores
    if together > cores or gpus * together > have.get("GPU", 0):
        raise UsageError(
            f"--num-workers {together}" + (f" --gpus-per-worker {gpus:g}" if gpus else ""),
            expected=f"a cluster of at least {together} cores and {gpus * together:g} GPUs",
            got=f"{cores} cores and {have.get('GPU', 0):g} GPUs",
            do="ask for fewer workers, or add machines with `ray start --address=…`",
        )
    return together, cores // together


def _search(ray: Any, referee: Any, job: Job, *, together: int, cores: int, gpus: float) -> None:
    left = ray.get(referee.left.remote())
    if not left:
        return
    os.environ |= {"TUNE_DISABLE_SIGINT_HANDLER": "1", "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1"}
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"  # the other one draws boxes, told not to or not
    from ray import tune

    from klinepred.training.handed import record_settings

    place = job.setting.space.mlruns / "ray" / job.path.stem
    order = {
        "referee": referee,
        "setting": job.setting,
        "cores": cores,
        "home": os.getcwd(),
        "record": record_settings(),
    }
    trial = tune.with_resources(
        tune.with_parameters(_trial, data=job.data, order=order), {"cpu": cores, **({"gpu": gpus} if gpus else {})}
    )
    tuner = tune.Tuner(
        trial,
        tune_config=tune.TuneConfig(
            search_alg=_searcher(ray, referee),
            num_samples=left,
            max_concurrent_trials=together,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name=place.name,
            storage_path=str(place.parent.resolve()),
            failure_config=tune.FailureConfig(max_failures=AGAIN),
            verbose=0,
        ),
    )
    try:
        tuner.fit()
    except Exception as error:  # Ray has no one class for what its controller raises
        raise TrainingError(
            "tuning on Ray",
            expected="a cluster that stays",
            got=" ".join(str(error).split())[:300],
            do=f"look at `ray status` and the machines' memory; klinepred tune --resume {job.path.stem} goes on",
        ) from error
    finally:
        shutil.rmtree(place, ignore_errors=True)  # what counts lies in the study and in MLflow
        with suppress(OSError):
            place.parent.rmdir()  # unless something else lies there


def _searcher(ray: Any, referee: Any) -> Any:
    """Ray Tune's view of the study."""
    from ray.tune.search import Searcher

    class OfStudy(Searcher):
        """Asks the referee what to try."""

        def suggest(self, trial_id: str) -> Any:
            number = ray.get(referee.next.remote())
            return Searcher.FINISHED if number is None else {"number": number}

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            return None  # the trial has told the referee itself

        def save(self, checkpoint_path: str) -> None:
            return None  # the study is its own record

        def restore(self, checkpoint_path: str) -> None:
            return None

    return OfStudy(metric="val_loss", mode="min")


def _trial(config: dict[str, Any], *, data: Dataset, order: dict[str, Any]) -> dict[str, Any]:
    """What a worker does with a candidate."""
    import time
    import warnings

    import ray
    import torch

    from klinepred.engine.on_ray import go_to
    from klinepred.training.handed import put_up
    from klinepred.training.signals import TrainingStopped
    from klinepred.tuning.space import with_values
    from klinepred.tuning.trial import run_trial

    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # it is only read
    torch.set_num_threads(order["cores"])
    setting: Setting = order["setting"]
    referee, asked = order["referee"], [time.monotonic()]
    one: Candidate = ray.get(referee.candidate.remote(config["number"]))
    go_to(order["home"])
    put_up(order["record"])

    def heard(epoch: int, loss: float) -> bool:
        return bool(ray.get(referee.heard.remote(one.number, epoch, loss)))

    def stopping() -> None:
        if time.monotonic() - asked[0] < ASK_S:
            return
        asked[0] = time.monotonic()
        if ray.get(referee.stopping.remote()):
            raise TrainingStopped("tuning", expected="to go on", got="a stop", do="resume")

    post = _Post(referee, one.number)
    heard_log = logging.getLogger("klinepred")
    heard_log.addHandler(post)
    try:
        tried = run_trial(one, with_values(setting.run, one.values), data, setting, heard=heard, stopping=stopping)
    except TrainingStopped:
        return {"val_loss": float("inf")}
    finally:
        heard_log.removeHandler(post)
    ray.get(referee.close.remote(tried))
    return {"val_loss": float("inf") if tried.loss is None else tried.loss}


class _Post(logging.Handler):
    """Sends a worker's warnings to the driver."""

    def __init__(self, referee: Any, number: int) -> None:
        super().__init__(logging.WARNING)
        self._referee, self._number = referee, number

    def emit(self, record: logging.LogRecord) -> None:
        self._referee.tell.remote(f"trial {self._number}: {record.getMessage()}")


def computing(*, workers: int | None, gpus: float) -> Callable[[Job], None]:
    """`on_ray` with its options.

    Raises
    ------
    UsageError
        Ray is not installed; nothing was begun yet.
    """
    if find_spec("ray") is None:
        raise UsageError("--engine ray", expected="Ray", got="no such package", do="pip install 'klinepred[ray]'")
    return partial(on_ray, workers=workers, gpus=gpus)
