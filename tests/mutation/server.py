"""In: orders as lines of JSON: a file, the tests that ought to notice. Out: a line each: whether they did."""

# Runs in the tree under test. It imports what is large once; each order is a fork, so that what a mutant breaks is
# gone with it. Nothing of klinepred is imported before the fork. Only the standard library is needed to start.

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

import pytest

MOST_BYTES = 8 << 30


class Witness:
    """Remembers the first test that failed, and whether a file of tests could not even be imported."""

    def __init__(self) -> None:
        self.first = ""
        self.void = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.first = self.first or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.first = self.first or report.nodeid
            self.void = True


def judge(order: dict[str, Any]) -> dict[str, Any]:
    """`outcome` is killed, survived, timeout, void (imports fail at once), or error (no test ran or imports it)."""
    parent = os.getppid()
    reader, writer = os.pipe()
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()
        try:
            _test(order, writer)
        finally:
            os._exit(1)  # whatever was raised: there is one server only
    os.close(writer)
    text, gone, late = b"", False, False
    while not text.endswith(b"\n") and not gone and not late:
        ready = bool(select.select([reader], [], [], 0.2)[0])
        piece = os.read(reader, 65536) if ready else b""
        text += piece
        gone = ready and not piece
        late = time.monotonic() - start > order["limit"] or os.getppid() != parent  # nobody waits any more
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)
    answer = json.loads(text) if text.endswith(b"\n") else {"outcome": "timeout" if late else "killed", "by": "a crash"}
    return {**answer, "seconds": round(time.monotonic() - start, 1)}


def _test(order: dict[str, Any], writer: int) -> None:
    """Run the tests and write the answer."""
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    seconds = int(2 * order["limit"])  # of all its threads: it ends even where nobody waits for it any more
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    sys.dont_write_bytecode = not order["keep_bytecode"]
    if sys.dont_write_bytecode:
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    witness = Witness()
    words = ["-x", "-q", "-p", "no:cacheprovider", f"--basetemp={order['scratch']}", "--hypothesis-seed=0"]
    words += ["-W", "ignore:Module already imported so cannot be rewritten"]
    code = int(pytest.main([*words, *order["tests"]], plugins=[witness]))
    reached = any(getattr(module, "__file__", None) == order["module"] for module in list(sys.modules.values()))
    if code == pytest.ExitCode.NO_TESTS_COLLECTED or (code == pytest.ExitCode.OK and not reached):
        outcome = "error"
    elif witness.void or code == pytest.ExitCode.USAGE_ERROR:
        outcome = "void"
    else:
        outcome = "survived" if code == pytest.ExitCode.OK else "killed"
    os.write(writer, json.dumps({"outcome": outcome, "by": witness.first}).encode() + b"\n")


def main() -> None:
    """Import what is named, say so, and answer until there are no more orders."""
    answers: BinaryIO = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.setpgid(0, 0)
    for name in sys.argv[1:]:
        importlib.import_module(name)
    answers.write(json.dumps({"threads": len(list(Path("/proc/self/task").iterdir()))}).encode() + b"\n")
    for line in sys.stdin:
        answers.write(json.dumps(judge(json.loads(line))).encode() + b"\n")


if __name__ == "__main__":
    main()
