"""In: SIGINT, SIGTERM, SIGHUP. Out: an interruption at once while waiting, and after the work where work must end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


class Stopped(KeyboardInterrupt):
    """A signal asked for the end.

    Attributes
    ----------
    exit_code
        130 for SIGINT, 143 for the others.
    """

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        self.exit_code = 130 if self.signal is signal.SIGINT else 143
        super().__init__(self.signal.name)


class Stops:
    """While it is entered, a stop signal raises `Stopped`; inside `held` only when that ends.

    The handlers that were there come back on leaving. Outside the main thread, where Python delivers no signals, it
    does nothing; a signal that is ignored (nohup) stays ignored.
    """

    def __init__(self) -> None:
        self._holding = False
        self._waiting: int | None = None
        self._old: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stops:
        if threading.current_thread() is threading.main_thread():
            for name in NAMES:
                number = getattr(signal, name, None)
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    self._old[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._old.clear()

    @contextmanager
    def held(self) -> Iterator[None]:
        """What is done in here is done whole."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        if self._waiting is not None:
            number, self._waiting = self._waiting, None
            raise Stopped(number)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._holding:
            self._waiting = number
            return
        raise Stopped(number)
