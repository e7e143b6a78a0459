"""In: a script. Out: what it says in a Python process of its own, where Ray may do as it likes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from klinepred.engine.on_ray import LOOPBACK

ROOT = Path(__file__).parents[2]


def alone(*words: str, wait_s: float = 300.0, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python with `words` from the root of the project; settings of Ray are left out.

    Ray makes its workers nicer than everything else on the machine: they would wait for the other tests.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**clean, "PYTHONWARNINGS": "ignore", LOOPBACK: "0", "RAY_worker_niceness": "0", **more},
        capture_output=True,
        text=True,
        timeout=wait_s,
        check=False,
    )
