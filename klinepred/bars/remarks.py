"""In: lines for the user. Out: each once on stderr as it comes, all of them in the report."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

log = logging.getLogger("klinepred.bars")


@dataclass
class Remarks:
    """What one ingest has to say beside its counts."""

    _lines: dict[str, None] = field(default_factory=dict)

    def say(self, line: str, *, loud: bool = False) -> None:
        """Say `line`, unless it was said before; `loud`: as a warning."""
        if line not in self._lines:
            self._lines[line] = None
            (log.warning if loud else log.info)(line)

    def lines(self) -> tuple[str, ...]:
        """All of them, in the order they were said."""
        return tuple(self._lines)
