"""In: all tests. Out: which of them stay in one process, and what the processes of pytest-xdist begin with."""

from __future__ import annotations

from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

LONGEST: Final = (
    "tests/test_faults.py",
    "tests/docs",
    "tests/test_scheduled.py",
    "tests/test_tune.py",
    "tests/cli/test_audit.py",
    "tests/training/test_tracking.py",
    "tests/evaluation/test_rules.py",
    "tests/test_journey.py",
    "tests/cli/test_torchrun.py",
    "tests/test_object_storage.py",
    "tests/test_resume.py",
    "tests/test_cluster.py",
    "tests/audit/test_selftest.py",
    "tests/live/test_faults.py",
    "tests/serving/test_server.py",
    "tests/test_memory_budget.py",
    "tests/live/test_replay.py",
    "tests/audit/test_clean.py",
    "tests/audit/test_own_features.py",
    "tests/test_case_study.py",
    "tests/test_walk.py",
    "tests/test_replay.py",
)
"""What to begin with, the longest first, so that no process is left with one of these at the end."""


def scope_of(test: str) -> str:
    """The file of a test; all pages of docs share a workspace that takes long to make, and the lines already run."""
    return "tests/docs" if test.startswith("tests/docs/") else test.partition("::")[0]


def sort_tests(items: list[pytest.Item]) -> None:
    """Put the longest first; all else stays in its order."""
    rank = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(scope_of(item.nodeid), len(rank)))


class ByScope(LoadFileScheduling):  # type: ignore[misc]
    """As `--dist loadfile`, with `scope_of` in the place of the file."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
