"""In: how many inputs, a seed. Out: workers that take them in, watched from outside; sums, and where failures lie."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[3]
HANG_S: Final = 120.0
"""One input takes milliseconds, the first of a calendar seconds; longer than this is a hang, even on a busy machine."""


@dataclass(frozen=True)
class Outcome:
    """Sums over all workers.

    Attributes
    ----------
    inputs, past
        Inputs taken in; those that got past the header (a frame of rows was made of them).
    faults
        What must never be, each in a line.
    failures
        Folder with the failing inputs, what they raised, what came on stderr.
    seconds
        Processor time of all workers.
    """

    inputs: int
    past: int
    faults: tuple[str, ...]
    failures: Path
    ends: dict[str, int]
    forms: dict[str, int]
    seconds: float

    def __str__(self) -> str:
        ends = ", ".join(f"{count:,} {word}" for word, count in sorted(self.ends.items(), key=lambda item: -item[1]))
        forms = ", ".join(f"{count:,} {word}" for word, count in sorted(self.forms.items(), key=lambda item: -item[1]))
        share = self.past / max(self.inputs, 1)
        return (
            f"{self.inputs:,} inputs, {share:.1%} past the header, {len(self.faults)} faults, {self.seconds:.0f} s of "
            f"processor time\n  ended: {ends}\n  modes: {forms}\n  failures: {self.failures}"
        )


def campaign(count: int, *, seed: int, workers: int = 1, first: int = 0) -> Outcome:
    """Take in `count` inputs; a worker that hangs or dies is a fault, and another goes on after that input."""
    failures = Path(tempfile.mkdtemp(prefix="klinepred-fuzz-"))
    shares = [_Share(number, seed, first + number, first + count, workers, failures) for number in range(workers)]
    before = os.times()
    for share in shares:
        share.start()
    while any(not share.done for share in shares):
        time.sleep(0.2)
        for share in shares:
            share.look()
    after = os.times()
    ends: Counter[str] = Counter()
    forms: Counter[str] = Counter()
    faults = [text for share in shares for text in share.faults]
    faults += [f"{path.parent.name}: {_last(path)}" for path in sorted(failures.glob("*/what.txt"))]
    for share in shares:
        for sums in share.sums:
            ends.update(sums["ends"])
            forms.update(sums["modes"])
    past = sum(sums["past"] for share in shares for sums in share.sums)
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return Outcome(sum(ends.values()), past, tuple(faults), failures, dict(ends), dict(forms), seconds)


class _Share:
    """Every `step`th input, taken in by one process at a time."""

    def __init__(self, number: int, seed: int, start: int, stop: int, step: int, failures: Path) -> None:
        self.number, self.seed, self.start_at, self.stop, self.step = number, seed, start, stop, step
        self.failures = failures
        self.done = False
        self.sums: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self._box: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[str] | None = None
        self._seen, self._since = "", 0.0

    def start(self) -> None:
        """Run a worker from `start_at` on; its store lies in memory where there is a disk in memory."""
        memory = Path("/dev/shm")  # noqa: S108
        self._box = tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)
        words = ["--seed", self.seed, "--start", self.start_at, "--stop", self.stop, "--step", self.step]
        words += ["--sandbox", Path(self._box.name) / "box", "--failures", self.failures]
        with self._err().open("w") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.bars.fuzz.worker", *map(str, words)],
                cwd=ROOT,
                env={
                    **os.environ,
                    "KLINEPRED_CACHE": "",  # nothing may be written outside the sandbox
                    "POLARS_MAX_THREADS": "1",
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "PYTHONPATH": str(ROOT),
                },
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
            )
        self._since = time.monotonic()

    def look(self) -> None:
        """Take the sums of a worker that ended; end one that hangs."""
        process = self._process
        if self.done or process is None:
            return
        beat = self._beat()
        if process.poll() is None:
            if beat != self._seen:
                self._seen, self._since = beat, time.monotonic()
            elif time.monotonic() - self._since > HANG_S:
                process.send_signal(signal.SIGABRT)  # faulthandler says where it hangs
                process.communicate()
                self._next(f"{self.seed}-{beat}: no end after {HANG_S:.0f} s")
            return
        out, _ = process.communicate()
        if process.returncode == 0:
            self.sums.append(json.loads(out.splitlines()[-1]))
            self.done = True
            self._close()
        else:
            self._next(f"{self.seed}-{beat}: the process ended with {process.returncode}: {self._tail()}")

    def _next(self, fault: str) -> None:
        self.faults.append(fault)
        self._close()
        beat = self._beat()
        if not beat or len(self.faults) > 5:
            self.done = True
            return
        self.sums.append({"past": 0, "ends": {"died": 1}, "modes": {}})
        self.start_at = int(beat) + self.step
        self.start()

    def _beat(self) -> str:
        process = self._process
        path = self.failures / f"beat-{self.start_at}-{process.pid if process else 0}"
        return path.read_text().strip() if path.exists() else ""

    def _err(self) -> Path:
        return self.failures / f"stderr-{self.number}-{self.start_at}.txt"

    def _tail(self) -> str:
        return self._err().read_text(errors="replace")[-400:]

    def _close(self) -> None:
        if self._box is not None:
            self._box.cleanup()


def _last(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return (lines or [""])[-1][:300]
