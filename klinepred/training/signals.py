"""In: SIGINT, SIGTERM, SIGHUP. Out: a flag that the loop reads between two steps, and the errors that end the run."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

from klinepred.errors import TrainingError

STOPS = ("SIGINT", "SIGTERM", "SIGHUP")


class TrainingStopped(TrainingError):  # noqa: N818  # no fault, and the design calls it so
    """Training was stopped by the user (SIGINT); the checkpoint named in the message continues it."""

    exit_code: ClassVar[int] = 130


class TrainingTerminated(TrainingStopped):
    """Training was stopped by SIGTERM or SIGHUP; the checkpoint named in the message continues it."""

    exit_code: ClassVar[int] = 143


class WaitOver(KeyboardInterrupt):
    """What ends a wait that a stop signal has cut short; no `except Exception` on the way takes it for a fault."""


class StopRequest:
    """While it is entered, the first stop signal is remembered; a second one interrupts at once.

    The handlers that were there come back on leaving; a signal that nobody answered by then is passed on to them, so a
    Ctrl-C in the last moments is late, not lost. Outside the main thread, where Python delivers no signals,
    it does nothing; a signal that is ignored (nohup) stays ignored.

    Attributes
    ----------
    signal
        The one that came; None = none yet.
    gave_up
        Whether a wait was cut short for it.
    """

    inside: ClassVar[list[StopRequest]] = []
    """Those entered in the main thread, the innermost last: it is the one that hears."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self.gave_up = False
        self._old: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self.inside.append(self)
            for name in STOPS:
                number = getattr(signal, name, None)
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    self._old[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._old.clear()
        if self in self.inside:
            self.inside.remove(self)
        if self.signal is not None and kind is None:
            signal.raise_signal(self.signal)

    def give_up(self) -> None:
        """End what the main thread waits for, once a signal has come; called by another thread."""
        if self.signal is not None:
            self.gave_up = True
            signal.pthread_kill(threading.main_thread().ident or 0, self.signal)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            raise WaitOver if self.gave_up else KeyboardInterrupt
        self.signal = signal.Signals(number)

    def error(self, *, where: str, checkpoint: Path | None = None, do: str = "") -> TrainingStopped:
        """The error to raise once everything is saved; `do`: where it is not going on from `checkpoint`, what to do."""
        stopper = self.signal or signal.SIGINT
        kind = TrainingStopped if stopper is signal.SIGINT else TrainingTerminated
        return kind(
            f"training stopped by {stopper.name}",
            expected="the run to reach its last epoch",
            got=f"a stop {where}",
            do=do or resume_advice(checkpoint),
        )


def resume_advice(checkpoint: Path | None) -> str:
    """How to go on from `checkpoint`."""
    if checkpoint is None:
        return "start again; nothing was saved, since no checkpoint was asked for"
    return f"continue with --resume {checkpoint.stem if checkpoint.parent.name == 'checkpoints' else checkpoint}"
