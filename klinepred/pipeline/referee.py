"""In: a study, trials on the machines of a Ray cluster. Out: `Referee`, an actor that alone decides and writes down."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klinepred.errors import TrainingError
from klinepred.pipeline.trials import refuse_many_failures

if TYPE_CHECKING:
    from klinepred.tuning.study import Candidate, Tried

ASK_S: Final = 0.5
"""Seconds between two questions of the driver and of a trial."""

log = logging.getLogger("klinepred.pipeline")


class Referee:
    """A Ray actor: the study, and what trials and driver tell each other."""

    def __init__(self, path: str) -> None:
        from klinepred.tuning.study import Study

        self._study = Study(Path(path))
        self._begun: dict[int, Candidate] = {}
        self._news: list[tuple[str, Any]] = []
        self._over = self._stopped = False

    def left(self) -> int:
        return self._study.left()

    def next(self) -> int | None:
        one = None if self._over else self._study.next(busy=[*self._begun])
        if one is None:
            return None
        self._begun[one.number] = one
        return one.number

    def candidate(self, number: int) -> Candidate:
        return self._begun[number]

    def heard(self, number: int, epoch: int, loss: float) -> bool:
        return self._study.heard(number, epoch, loss)

    def close(self, tried: Tried) -> None:
        self._study.close(tried)
        self._news.append(("tried", tried))
        try:
            refuse_many_failures(self._study.rows())
        except TrainingError:  # the driver finds it again at the end
            self._over = True

    def tell(self, line: str) -> None:
        self._news.append(("line", line))

    def news(self) -> list[tuple[str, Any]]:
        news, self._news = self._news, []
        return news

    def stop(self) -> None:
        self._over = self._stopped = True

    def stopping(self) -> bool:
        return self._stopped


def referee_beside(ray: Any, path: Path) -> Any:
    """The referee, on this machine, where the study lies."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0)(Referee).options(scheduling_strategy=here).remote(str(path))


@contextmanager
def watched(ray: Any, referee: Any, stop: Any, told: Callable[[Tried], None]) -> Iterator[None]:
    """While it is entered, the driver's stop signal reaches the trials, and their news the user."""
    done = threading.Event()

    def watch() -> None:
        last = False
        while not last:
            last = done.wait(ASK_S)
            if stop.signal is not None:
                referee.stop.remote()
            try:
                news = ray.get(referee.news.remote())
            except ray.exceptions.RayError:  # the cluster is gone: the search itself says so
                return
            for kind, what in news:
                if kind == "tried":
                    told(what)
                else:
                    log.warning("%s", what)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=10.0)
