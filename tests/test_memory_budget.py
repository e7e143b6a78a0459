"""In: eight shares of us8, the default pipeline. Out: its training stays below 2 GiB of resident memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from klinepred.cli import main

FILE = Path(__file__).parents[1].parent / "shared" / "data" / "us8_yahoo_2025-06_08_5m.parquet"
CODE = """
import sys
from klinepred.cli import main
code = main(sys.argv[1:])
(line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print("peak", line.split()[1])
sys.exit(code)
"""


@pytest.mark.skipif(not FILE.is_file(), reason="the shared data are not here")
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="the peak is read in /proc")
def test_us8_trains_below_2_gib(tmp_path: Path) -> None:
    assert main(["ingest", str(FILE), "-q", "-w", str(tmp_path)]) == 0
    short = ["--epochs", "1", "--set", "train.ensemble=1"]  # members are trained one after another
    words = [sys.executable, "-c", CODE, "train", *short, "--device", "cpu", "-w", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    peak_kib = int(done.stdout.split()[-1])
    assert 200 * 1024 < peak_kib < 2 * 1024 * 1024
