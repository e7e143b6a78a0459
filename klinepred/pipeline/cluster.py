"""In: a pipeline, a workspace that a Ray cluster sees. Out: a model that several of its workers trained together."""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klinepred.errors import KlinepredError, TrainingError, UsageError
from klinepred.paths import Workspace
from klinepred.settings import Pipeline

if TYPE_CHECKING:
    from klinepred.pipeline.folds import WalkForward
    from klinepred.training.progress import EpochNews, Progress, StepNews

log = logging.getLogger("klinepred.pipeline")

AGAIN: Final = 3
"""How often all workers are started again after one was lost."""
ASK_S: Final = 0.3


@dataclass(frozen=True)
class TrainedThere:
    """What the driver is told of a training: the model's name, its run, its labels by part."""

    name: str
    run_id: str
    counts: Mapping[str, int]


def train_on_ray(
    run: Pipeline,
    space: Workspace,
    *,
    workers: int,
    gpus: float = 0.0,
    progress: Progress | None = None,
    **options: Any,
) -> TrainedThere:
    """Train with Ray Train's `TorchTrainer`: `klinepred.pipeline.train_model` in every worker, DDP between them.

    A worker that is lost is started again with all others, and training goes on from the last checkpoint. They record
    the run where this process would, by its own credentials.

    Parameters
    ----------
    workers
        Processes that train together; each takes `train.batch` sequences of a step.
    gpus
        GPUs of each; 0 trains on its CPU cores.
    options
        resume, init_from, allow_leaks of `train_model`.

    Raises
    ------
    KlinepredError
        As `train_model`, or Ray is not installed, or has too few cores or GPUs, or workers were lost again and again.
    """
    return TrainedThere(**_together(run, space, workers=workers, gpus=gpus, progress=progress, options=options))


def train_folds_on_ray(
    run: Pipeline,
    space: Workspace,
    *,
    workers: int,
    gpus: float = 0.0,
    progress: Progress | None = None,
    **options: Any,
) -> WalkForward:
    """As `train_on_ray`, with `klinepred.pipeline.train_folds` in every worker: resume, allow_leaks of it."""
    from klinepred.pipeline.folds import read_record, record_path

    end = _together(run, space, workers=workers, gpus=gpus, progress=progress, options=options)
    return read_record(record_path(space, end["record"]))


def _together(
    run: Pipeline,
    space: Workspace,
    *,
    workers: int,
    gpus: float,
    progress: Progress | None,
    options: dict[str, Any],
) -> dict[str, Any]:
    """What the first worker says at the end."""
    from klinepred.engine.on_ray import ray_cluster
    from klinepred.training.handed import record_settings

    with ray_cluster(workers=None) as engine:
        _check_room(engine.ray.cluster_resources(), workers=workers, gpus=gpus)
        news = engine.ray.remote(num_cpus=0)(_Mailbox).options(scheduling_strategy=_here(engine.ray)).remote()
        engine.ray.get(news.keep.remote(record_settings()))  # no part of the order, which Ray may show
        cores = max(1, engine.workers // workers)
        order = {
            "run": run.model_dump(mode="json"),
            "space": str(space.root.resolve()),
            "options": options,
            "home": os.getcwd(),
            "job": uuid.uuid4().hex,
            "threads": cores,
            "quiet": progress is None,
        }
        done = threading.Event()
        reader = threading.Thread(target=_relay, args=(engine.ray, news, progress, done), daemon=True)
        reader.start()
        try:
            _fit(order, news, workers=workers, gpus=gpus, cores=cores, place=space.mlruns / "ray")
        finally:
            done.set()
            reader.join(timeout=10.0)
            if progress is not None:
                progress.end()
        end = engine.ray.get(news.outcome.remote())
    if end is None:
        raise TrainingError("training on Ray", expected="a model", got="none", do="look at the workers' logs")
    if "error" in end:
        raise _raised(end["error"])
    return dict(end)


def _here(ray: Any) -> Any:
    """The driver's own machine: what lies there is lost with the driver alone."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def _check_room(resources: Mapping[str, float], *, workers: int, gpus: float) -> None:
    have, want = (
        {"CPU": resources.get("CPU", 0), "GPU": resources.get("GPU", 0)},
        {"CPU": workers, "GPU": workers * gpus},
    )
    if any(have[name] < want[name] for name in want):
        raise UsageError(
            f"--num-workers {workers}" + (f" --gpus-per-worker {gpus:g}" if gpus else ""),
            expected=f"a cluster of at least {want['CPU']} cores and {want['GPU']:g} GPUs",
            got=f"{have['CPU']:g} cores and {have['GPU']:g} GPUs",
            do="ask for fewer workers, or add machines with `ray start --address=…`",
        )


def _fit(order: dict[str, Any], news: Any, *, workers: int, gpus: float, cores: int, place: Path) -> None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    share = {"CPU": cores, **({"GPU": gpus} if gpus else {})}
    trainer = TorchTrainer(
        _worker,
        train_loop_config={**order, "news": news},
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpus > 0, resources_per_worker=share),
        run_config=RunConfig(
            name=order["job"], storage_path=str(place.resolve()), failure_config=FailureConfig(max_failures=AGAIN)
        ),
    )
    try:
        trainer.fit()
    except Exception as error:  # Ray has no one class for what its controller raises
        raise TrainingError(
            "training on Ray",
            expected=f"workers that get through, at the latest when started {AGAIN + 1} times",
            got=" ".join(str(error).split())[:300],
            do="look at `ray status` and the machines' memory; --resume last goes on from the last checkpoint",
        ) from error


class _Mailbox:
    """A Ray actor: what the first worker tells, until the driver asks for it; what the driver has for the workers."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self._end: dict[str, Any] | None = None
        self._settings: dict[str, str] = {}

    def keep(self, settings: dict[str, str]) -> None:
        self._settings = settings

    def settings(self) -> dict[str, str]:
        return self._settings

    def tell(self, kind: str, what: dict[str, Any]) -> None:
        self._waiting.append((kind, what))

    def ask(self) -> list[tuple[str, dict[str, Any]]]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def close(self, end: dict[str, Any]) -> None:
        self._end = end

    def outcome(self) -> dict[str, Any] | None:
        return self._end


def _relay(ray: Any, news: Any, progress: Progress | None, done: threading.Event) -> None:
    """Show what the first worker tells as if it happened here."""
    from klinepred.training.progress import EpochNews, StepNews

    last = False
    while not last:
        last = done.wait(ASK_S)
        for kind, what in ray.get(news.ask.remote()):
            if kind == "log":
                log.log(what["level"], "%s", what["line"])
            elif progress is not None and kind == "begin":
                progress.begin(**what)
            elif progress is not None and kind == "step":
                progress.step(StepNews(**what))
            elif progress is not None and kind == "epoch":
                progress.epoch(EpochNews(**what))


def _worker(order: dict[str, Any]) -> None:
    """What every worker does; errors of klinepred are told, not raised: trying again would not mend them."""
    import ray
    import torch

    from klinepred.config import change_pipeline
    from klinepred.engine.on_ray import go_to
    from klinepred.pipeline.learn import train_model
    from klinepred.pipeline.walk import train_folds
    from klinepred.training.handed import put_up
    from klinepred.training.ranks import JOB, ranks

    go_to(order["home"])
    os.environ[JOB] = order["job"]
    put_up(ray.get(order["news"].settings.remote()))
    torch.set_num_threads(order["threads"])
    space = Workspace(Path(order["space"]))
    run = change_pipeline(order["run"], overrides=(), where="of the driver", workspace=space)
    news = order["news"]
    post = _Post(news)
    heard = logging.getLogger("klinepred")
    heard.setLevel(logging.INFO if ranks().first else logging.CRITICAL)
    heard.addHandler(post)
    heard.propagate = False
    end: dict[str, Any]
    try:
        shown = None if order["quiet"] else post
        if run.dataset.split.folds > 1:
            end = {"record": train_folds(run, space, progress=shown, **order["options"]).name}
        else:
            done = train_model(run, space, progress=shown, **order["options"])
            end = {"name": done.bundle.name, "run_id": done.bundle.run_id, "counts": done.data.counts()}
    except KlinepredError as error:
        end = {"error": [type(error).__name__, error.summary, error.expected, error.got, error.do]}
        if "a lost connection" in error.got or "told in its own message" in error.got:
            raise  # another worker is gone: Ray starts all again
    finally:
        heard.removeHandler(post)
    if ranks().first:
        ray.get(news.close.remote(end))


class _Post(logging.Handler):
    """Sends a worker's news to the driver; implements `Progress` and a handler of its log."""

    def __init__(self, news: Any) -> None:
        super().__init__()
        self._news = news

    def emit(self, record: logging.LogRecord) -> None:
        self._news.tell.remote("log", {"level": record.levelno, "line": record.getMessage()})

    def begin(self, *, steps: int, done: int) -> None:
        self._news.tell.remote("begin", {"steps": steps, "done": done})

    def step(self, news: StepNews) -> None:
        self._news.tell.remote("step", asdict(news))

    def epoch(self, news: EpochNews) -> None:
        self._news.tell.remote("epoch", asdict(news))

    def end(self) -> None:
        return None


def _raised(parts: list[str]) -> KlinepredError:
    from klinepred import errors
    from klinepred.training import signals

    name, summary, expected, got, do = parts
    kind = getattr(errors, name, None) or getattr(signals, name, None) or TrainingError
    return kind(summary, expected=expected, got=got, do=do)
