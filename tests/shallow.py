"""In: nothing. Out: the shallowest of audits before a training, for tests that are about something else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from klinepred.audit.depth import FAST


@contextmanager
def shallow_audit() -> Iterator[None]:
    """Every check is made, on fewer rows and cuts; tests of the audit and trainings in processes of their own make all.

    Of a training of some seconds the audit takes two thirds.
    """
    with pytest.MonkeyPatch.context() as patch:
        shallow = replace(FAST, rows=4000, cuts=1, futures=1, starts=1, held_out=1, replays=1, evidence=8000)
        patch.setattr("klinepred.audit.audit.FAST", shallow)
        yield
