"""In: a Ray cluster. Out: `OnRay`, an engine that applies functions on its machines, again where one was lost."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from types import ModuleType
from typing import Any, Final, TypeVar

from klinepred.errors import KlinepredError, UsageError

T = TypeVar("T")
R = TypeVar("R")

AGAIN: Final = 5
"""How often a thing is tried again whose worker or machine was lost."""
AHEAD: Final = 4
"""Things handed out for each worker before the first result is taken: bounds what waits in memory."""
LOOPBACK: Final = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""At 0, on every system, what Ray starts on this machine listens on 127.0.0.1 alone. Read when Ray is imported."""

log = logging.getLogger("klinepred.engine")


class OnRay:
    """Ray's tasks, one processor core each. The workspace must be the same folder on all machines."""

    def __init__(self, ray: ModuleType) -> None:
        self.ray = ray

    @property
    def workers(self) -> int:
        """Processor cores of the cluster."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def map(self, function: Callable[[T], R], things: Iterable[T]) -> Iterator[R]:
        """As `klinepred.engine.engine.Engine.map`; an error of `function` ends it.

        Raises
        ------
        KlinepredError
            A worker was lost again and again.
        """

        home = os.getcwd()

        def apply(thing: T) -> R:
            go_to(home)
            return function(thing)

        task = self.ray.remote(num_cpus=1, max_retries=AGAIN)(apply)
        for reference in self._given(task.remote, things, ended=lambda one: one):
            yield self._result(reference)

    def spread(self, function: Callable[[T], Iterator[R]], things: Iterable[T]) -> Iterator[R]:
        """As `klinepred.engine.engine.Engine.spread`; errors as `map`.

        Results wait in Ray's object store, on the disk where that is full. None is held back at the worker: one that
        waits to be asked would keep the core that the thing asked for may need to be tried again.
        """
        home = os.getcwd()

        def apply(thing: T) -> Iterator[R]:
            go_to(home)
            yield from function(thing)

        task = self.ray.remote(num_cpus=1, max_retries=AGAIN, num_returns="streaming")(apply)
        for results in self._given(task.remote, things, ended=lambda one: one.completed()):
            for reference in results:
                yield self._result(reference)

    def _given(self, hand: Callable[[T], Any], things: Iterable[T], *, ended: Callable[[Any], Any]) -> Iterator[Any]:
        """Hand things out, some ahead; what was made of each, in order, as soon as it has ended or enough are out."""
        limit = AHEAD * self.workers
        waiting: deque[Any] = deque()
        failure: Exception | None = None
        feed = iter(things)
        while failure is None:
            try:
                waiting.append(hand(next(feed)))
            except StopIteration:
                break
            except Exception as error:  # told when what came before it has been used, as it would be here
                failure = error
            while waiting and (len(waiting) >= limit or self.ray.wait([ended(waiting[0])], timeout=0)[0]):
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()
        if failure is not None:
            raise failure

    def _result(self, reference: Any) -> Any:
        errors = self.ray.exceptions
        try:
            return self.ray.get(reference)
        except errors.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except errors.RayError as error:
            raise KlinepredError(
                "a worker of the Ray cluster",
                expected=f"to get through, at the latest when tried {AGAIN + 1} times",
                got=" ".join(str(error).split())[:200],
                do="look at `ray status` and the machines' memory, then run the same command again",
            ) from error


@contextmanager
def ray_cluster(*, workers: int | None = None) -> Iterator[OnRay]:
    """Join the cluster of `RAY_ADDRESS`, or start one on this machine, for the length of a block.

    Parameters
    ----------
    workers
        Processor cores of the one that is started here; default: all.

    Raises
    ------
    UsageError
        Ray is not installed, or the cluster cannot be reached.
    """
    with _stdout_kept():
        ray = _ray()
        begun = not ray.is_initialized()
        if begun:
            _start(ray, workers)
        try:
            yield OnRay(ray)
        finally:
            if begun:
                ray.shutdown()


def _start(ray: ModuleType, workers: int | None) -> None:
    """Join or start a cluster. Parameters, errors as for `ray_cluster`."""
    address = os.environ.get("RAY_ADDRESS")
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "include_dashboard": False}
    own = {} if address else {"num_cpus": workers, "_node_ip_address": "127.0.0.1"}
    env = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    try:
        ray.init(address=address or "local", runtime_env={"env_vars": env}, **quiet, **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"--engine ray, RAY_ADDRESS={address}",
            expected="a Ray cluster that answers",
            got=" ".join(str(error).split())[:200],
            do="start one with `ray start --head`, or unset RAY_ADDRESS to use this machine",
        ) from error


@contextmanager
def _stdout_kept() -> Iterator[None]:
    """For the length of a block, what goes to stdout goes to stderr: results belong on stdout, and Ray tells there of
    lost workers. Ray's Python writes to `sys.stdout`, its core, in C++, and what it starts to the descriptor.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    try:
        kept: int | None = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # started without one of the two
        kept = None
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


def go_to(home: str) -> None:
    """Let relative paths mean what they mean to the driver; a machine without its folder stays where it is."""
    with suppress(OSError):
        os.chdir(home)


def _ray() -> ModuleType:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not os.environ.get("RAY_ADDRESS"):
        os.environ.setdefault(LOOPBACK, "0")
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            "--engine ray", expected="Ray", got="no such package", do="pip install 'klinepred[ray]'"
        ) from error
    return ray
