"""In: deeds. Out: programs that do them, started together or killed; what they left on the disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
LOCKS: Final = (".writer.lock", ".writer.json")


def start(deed: str, space: Path, folder: Path) -> subprocess.Popen[str]:
    """A program that has loaded all it needs, and waits for `go`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bars.kills.deeds", deed, str(space), str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def go(process: subprocess.Popen[str]) -> None:
    """Let it begin."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def files_of(space: Path) -> set[str]:
    """Files below the data folder, locks left out."""
    found: set[str] = set()
    for folder, _, names in os.walk(space / "data"):
        found.update(os.path.join(folder, name) for name in names if name not in LOCKS)
    return found


def commits_of(space: Path) -> int:
    """Commits of the bars table."""
    log = space / "data" / "bars" / "_delta_log"
    return len(list(log.glob("*.json"))) if log.is_dir() else 0


@dataclass(frozen=True)
class Times:
    """Seconds from `go` to the first byte written, to the first commit of bars, to the end."""

    first: float
    commit: float
    end: float


def time_of(deed: str, space: Path, folder: Path) -> Times:
    """Let a deed run undisturbed and look when it writes."""
    before, commits = files_of(space), commits_of(space)
    process = start(deed, space, folder)
    began = time.monotonic()
    go(process)
    first = commit = 0.0
    while process.poll() is None:
        now = time.monotonic() - began
        if not first and files_of(space) != before:
            first = now
        if not commit and commits_of(space) > commits:
            commit = now
        time.sleep(0.001)
    end = time.monotonic() - began
    _, err = process.communicate()
    assert process.returncode == 0, err
    return Times(first or end, commit or end, end)


@dataclass(frozen=True)
class Kill:
    """How one kill fell: whether anything was written, whether bars were committed, whether it had ended before."""

    wrote: bool
    committed: bool
    ended: bool

    @property
    def amid(self) -> bool:
        """Between the first byte and the first commit of bars."""
        return self.wrote and not self.committed


def kill(deed: str, space: Path, folder: Path, *, after_first: bool, delay: float) -> Kill:
    """Begin a deed and kill it with SIGKILL `delay` seconds after its first byte, or after its beginning."""
    before, commits = files_of(space), commits_of(space)
    process = start(deed, space, folder)
    go(process)
    if after_first:
        limit = time.monotonic() + 60.0
        while process.poll() is None and files_of(space) == before and time.monotonic() < limit:
            time.sleep(0.0005)
    time.sleep(delay)
    ended = process.poll() is not None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return Kill(files_of(space) != before, commits_of(space) > commits, ended)
