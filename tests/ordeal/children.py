"""In: command lines and surroundings. Out: what became of each, killed after a while where that is asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PARTS: Final = ("expected:", "got:", "do this:")


@dataclass(frozen=True)
class Ended:
    """A command that has ended: exit code (below 0: the signal), what it said, how long it took in seconds."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def told(self) -> bool:
        """Whether it failed in one message of three parts, and without a traceback."""
        whole = all(self.err.count(part) == 1 for part in PARTS)
        return self.code in (1, 2) and whole and self.clean

    @property
    def clean(self) -> bool:
        """Whether neither Python nor Rust shows its inside."""
        return "Traceback" not in self.err and "panicked" not in self.err


class Zygote:
    """The process that has everything imported, see `tests/ordeal/zygote.py`."""

    def __init__(self, folder: Path) -> None:
        self._out, self._err = folder / "stdout", folder / "stderr"
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "RAY_"))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.ordeal.zygote"],
            cwd=ROOT,
            env={**clean, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "2"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def run(self, words: list[str], *, kill: tuple[signal.Signals, float] | None = None, **order: Any) -> Ended:
        """One command line.

        Parameters
        ----------
        kill
            A signal, and seconds after the beginning.
        order
            bytes: no file may grow larger; clock: seed of a clock that jumps; powerless: permissions hold for root too.
        """
        self._say(json.dumps({**order, "words": words, "out": str(self._out), "err": str(self._err)}))
        child, began = int(self._line()), time.monotonic()
        if kill is not None:
            time.sleep(kill[1])
            os.kill(child, kill[0])
        code = int(self._line())
        self._say("read")
        spent = time.monotonic() - began
        return Ended(code, self._out.read_text(), self._err.read_text(), spent)

    def end(self) -> None:
        self._process.communicate(timeout=60.0)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()
