"""In: numbers of the processes, settings. Out: a training that several gloo processes have done together."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def free_port() -> int:
    """A port of the loopback that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Ended:
    """Exit code and streams of a process."""

    code: int
    out: str
    err: str


def together(command: list[str], *, world: int, cwd: Path, wait_s: float = 240.0, **more: str) -> list[Ended]:
    """Run `command` in `world` processes with the environment that torchrun gives them."""
    port = str(free_port())
    running = []
    for rank in range(world):
        settings = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "OMP_NUM_THREADS": "1",
        }
        running.append(
            subprocess.Popen(
                [sys.executable, *command],
                cwd=cwd,
                env={**os.environ, **settings, **more},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    ended = []
    try:
        for process in running:
            out, err = process.communicate(timeout=wait_s)
            ended.append(Ended(process.returncode, out, err))
    finally:
        for process in running:
            process.kill()
    return ended


def steps_of(ended: Ended) -> dict[str, Any]:
    """What `tests.training.ranked_child` printed last."""
    return dict(json.loads(ended.out.splitlines()[-1]))
