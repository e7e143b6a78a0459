"""In: a tree of code and tests. Out: `Bench`: a copy of it in which mutants stand trial, one after the other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tests.mutation.operators import Mutant

SERVER: Final = Path(__file__).with_name("server.py")
NOT_COPIED: Final = shutil.ignore_patterns("trained")
PATIENCE: Final = 5.0
"""A mutant is given so many times what the unchanged code takes,"""
LEAST: Final = 60.0
"""and so many seconds more."""
ONE_THREAD: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant; `by` is the first test that failed.

    `outcome` is killed, survived, timeout, void (it cannot even be imported: no test is needed, and it does not count),
    or error (no test ran, or none imports the module).
    """

    outcome: str
    by: str
    seconds: float


class Bench:
    """A copy of a tree; the real one is never touched.

    Each set of tests is run once on the unchanged code: it must pass, and its time is the measure for the mutants.

    Parameters
    ----------
    root, parts
        The tree, and which files and folders of it are copied. A folder `shared` beside it is found beside the copy.
    preload
        Modules that are imported once, before the first mutant.
    trust
        So many seconds for each mutant, and the tests are taken to pass on the unchanged code.
    """

    def __init__(
        self, root: Path, *, parts: Sequence[str], preload: Sequence[str] = (), trust: float | None = None
    ) -> None:
        self._trust = trust
        self._folder = Path(tempfile.mkdtemp(prefix="klinepred-mutation-"))
        self.tree = self._folder / "tree"
        self.tree.mkdir()
        for part in parts:
            if (root / part).is_dir():
                shutil.copytree(root / part, self.tree / part, ignore=NOT_COPIED)
            elif (root / part).exists():
                shutil.copy2(root / part, self.tree / part)
        if (root.parent / "shared").is_dir():
            (self._folder / "shared").symlink_to((root.parent / "shared").resolve())
        self._server = subprocess.Popen(
            [sys.executable, "-P", str(SERVER), *preload],
            cwd=self.tree,
            env={**os.environ, **dict.fromkeys(ONE_THREAD, "1"), "PYTHONPATH": str(self.tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.threads = int(self._answer()["threads"])
        self._needs: dict[tuple[str, ...], float] = {}
        self._stamp = 0

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        if kind is not None:
            self._server.kill()
        self._server.wait()
        self._server.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def try_out(self, mutant: Mutant, tests: tuple[str, ...]) -> Verdict:
        """Whether `tests` notice the mutant.

        Raises
        ------
        RuntimeError
            They fail on the unchanged code, or never import the module.
        """
        if tests not in self._needs and self._trust is None:
            plain = self._order(mutant.module, tests, limit=3600.0, keep_bytecode=True)
            if plain.outcome != "survived":
                raise RuntimeError(f"unchanged code: {plain.outcome} by {plain.by}\n{self.output()[-3000:]}")
            self._needs[tests] = plain.seconds
        path = self.tree / mutant.module
        before, stat = path.read_bytes(), path.stat()
        self._stamp += 1
        try:
            path.write_text(mutant.code, encoding="utf-8")
            # a time of its own: what is compiled is known by time and size, and most mutants have the size of all
            os.utime(path, (stat.st_mtime + 1000 + self._stamp, stat.st_mtime + 1000 + self._stamp))
            limit = self._trust or PATIENCE * self._needs[tests] + LEAST
            return self._order(mutant.module, tests, limit=limit, keep_bytecode=False)
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def output(self) -> str:
        """What the last run of tests said."""
        return (self._folder / "log").read_text(encoding="utf-8", errors="replace")

    def _order(self, module: str, tests: tuple[str, ...], *, limit: float, keep_bytecode: bool) -> Verdict:
        shutil.rmtree(self.tree / ".hypothesis", ignore_errors=True)  # what one mutant failed on is not for the next
        order = {
            "module": str(self.tree / module),
            "tests": tests,
            "limit": limit,
            "keep_bytecode": keep_bytecode,
            "log": str(self._folder / "log"),
            "scratch": str(self._folder / "scratch"),
        }
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        return Verdict(**self._answer())

    def _answer(self) -> dict[str, Any]:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        if not line:
            raise RuntimeError(f"the process that runs the tests has ended with {self._server.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer
