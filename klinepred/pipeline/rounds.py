"""In: a pipeline of a workspace. Out: the turn to be its only scheduled round; what such rounds have left behind."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from filelock import FileLock, Timeout

from klinepred.errors import TrainingError
from klinepred.paths import Workspace, write_atomic

log = logging.getLogger("klinepred.pipeline")

Word = Literal["nothing new", "not drifted", "promoted", "kept", "failed", "busy"]
OVER: Final = ("nothing new", "not drifted", "promoted", "kept")
"""Ends of a round after which only new bars give the next one something to do."""


@dataclass(frozen=True)
class Round:
    """What a scheduled round did.

    Attributes
    ----------
    word, sentence
        How it ended, as one word or two, and in full.
    step
        The last step begun: ingest, drift, train, evaluate, compare, promote.
    bars, last_bar
        Stored bars of the pipeline's symbols, and the end of the newest.
    store_version
        What was judged, or trained on.
    champion
        Who predicts after it; empty = nobody was ever promoted.
    candidate
        The model trained in it; empty = none.
    partly
        Some symbols failed in ingest.
    """

    word: Word
    sentence: str
    step: str
    bars: int = 0
    last_bar: str = ""
    store_version: int | None = None
    champion: str = ""
    candidate: str = ""
    partly: bool = False

    @property
    def line(self) -> str:
        """All of it in one line."""
        return f"{self.word}: {' '.join(self.sentence.split())}"


@dataclass(frozen=True)
class Begun:
    """A training that a round has begun; it lies on the disk until the round is over, so that a kill loses nothing.

    Attributes
    ----------
    settings
        Of the pipeline, resolved.
    bars, last_bar, store_version
        What it is trained on, as in `Round`.
    champion
        At that time; empty = none.
    models, checkpoints
        What was on the shelf and among the checkpoints before it.
    """

    settings: dict[str, Any]
    bars: int
    last_bar: str
    store_version: int | None
    champion: str
    models: tuple[str, ...]
    checkpoints: tuple[str, ...]


class Busy(TrainingError):  # noqa: N818  # no fault of anybody's
    """Another round of the same pipeline is at work."""


@contextmanager
def turn(space: Workspace, pipeline: str) -> Iterator[None]:
    """Be the only scheduled round of a pipeline while the block runs.

    The lock is the operating system's: it goes with the process that held it, however that ended.

    Raises
    ------
    Busy
        Another process has the turn; it is named.
    TrainingError
        The folder of the models cannot be written.
    """
    who = space.trained / f".{pipeline}.round.json"
    lock = FileLock(space.trained / f".{pipeline}.round.lock")
    try:
        space.trained.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise Busy(
            f"scheduled round of {pipeline}",
            expected="that no other round of this pipeline is at work",
            got=_holder(who),
            do="wait for it to end; the next round takes in what has come until then",
        ) from error
    except OSError as error:
        raise TrainingError(
            f"scheduled round of {pipeline}",
            expected=f"{space.trained}, a folder that can be written",
            got=str(error),
            do="free the disk or mend the permissions",
        ) from error
    try:
        _put(who, {"pid": os.getpid(), "since": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"})
        yield
    finally:
        lock.release()


def _holder(who: Path) -> str:
    try:
        table = json.loads(who.read_text(encoding="utf-8"))
        return f"process {table['pid']}, which began at {table['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def journal_path(space: Workspace, pipeline: str) -> Path:
    """Where the ends of all rounds of a pipeline are written down, a line of JSON each."""
    return space.trained / f"{pipeline}.rounds.jsonl"


def write_down(space: Workspace, pipeline: str, ended: Round, *, at: datetime) -> None:
    """Add the end of a round to the journal; a line that a kill has cut short does not spoil the next."""
    path = journal_path(space, pipeline)
    text = json.dumps({"at": f"{at:%Y-%m-%dT%H:%M:%SZ}", **asdict(ended)}, ensure_ascii=False)
    try:
        torn = path.is_file() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        with path.open("a", encoding="utf-8") as out:
            out.write(("\n" if torn else "") + text + "\n")
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        raise _unwritten(path, error) from error


def last_over(space: Workspace, pipeline: str) -> Round | None:
    """The last round that came to its end; None = there is none."""
    try:
        lines = journal_path(space, pipeline).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            table = json.loads(line)
            found = Round(**{name: table[name] for name in Round.__dataclass_fields__})
        except (ValueError, KeyError, TypeError):
            continue
        if found.word in OVER:
            return found
    return None


def begin(space: Workspace, pipeline: str, begun: Begun) -> None:
    """Note that a training begins."""
    _put(_begun_path(space, pipeline), asdict(begun))


def begun_before(space: Workspace, pipeline: str) -> Begun | None:
    """What a round that never ended had begun; None = nothing."""
    try:
        table = json.loads(_begun_path(space, pipeline).read_text(encoding="utf-8"))
        lists = {name: tuple(table[name]) for name in ("models", "checkpoints")}
        return Begun(**{**table, **lists})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget(space: Workspace, pipeline: str) -> None:
    """The training that was begun needs no going on with."""
    _begun_path(space, pipeline).unlink(missing_ok=True)


def _begun_path(space: Workspace, pipeline: str) -> Path:
    return space.trained / f".{pipeline}.begun.json"


def _put(path: Path, table: dict[str, Any]) -> None:
    try:
        write_atomic(path, json.dumps(table, ensure_ascii=False))
    except OSError as error:
        raise _unwritten(path, error) from error


def _unwritten(path: Path, error: OSError) -> TrainingError:
    return TrainingError(
        f"{path}", expected="a file that can be written", got=str(error), do="free the disk or mend the permissions"
    )
