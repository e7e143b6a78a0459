"""In: a call into polars that a damaged file may make panic. Out: its result or its error, and not a word on stderr."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

STDERR: Final = 2
MARK: Final = b"panicked at"
_ONE: Final = threading.Lock()


@contextmanager
def unsaid() -> Iterator[None]:
    """Keep back what threads of polars print about their own panics while the block runs.

    The panic comes as an error as well, and what it says there is told to the user. Anything else that came on stderr
    meanwhile is printed afterwards.
    """
    with _ONE:
        with suppress(AttributeError, OSError, ValueError):  # no stderr, or one that is closed
            sys.stderr.flush()
        try:
            there = os.dup(STDERR)
        except OSError:
            yield
            return
        try:
            with tempfile.TemporaryFile() as kept:
                os.dup2(kept.fileno(), STDERR)
                try:
                    yield
                finally:
                    os.dup2(there, STDERR)
                    kept.seek(0)
                    said = kept.read()
                    if said and MARK not in said:
                        os.write(STDERR, said)
        finally:
            os.close(there)
